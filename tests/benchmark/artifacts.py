"""Artifacts made by hand: files of any bytes, and a manifest that names them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.artifact import Artifact, StagedArtifact
from tests.samples import ids_inputs

__all__ = ["PATHS", "make_artifact"]

PATHS = {
    "fp32": "onnx/model.onnx",
    "int8": "onnx/model_quantized.onnx",
    "int4": "onnx/model_q4.onnx",
    "baseline": "baseline/model.onnx",
    "baseline-int8": "baseline/model_quantized.onnx",
    "baseline-int4": "baseline/model_q4.onnx",
}


def make_artifact(
    folder: Path, *variants: str, contents: Mapping[str, bytes] | None = None
) -> Artifact:
    """Write an artifact whose models are a few bytes; baselines have no tolerance.

    Args:
        folder: where to.
        variants: keys of :data:`PATHS`; the usual four where none is given.
        contents: other files, or other content, by path.
    """
    chosen = variants or ("fp32", "int8", "baseline", "baseline-int8")
    files = {PATHS[v]: f"{folder.name} {v} ".encode() * 50 for v in chosen}
    models: list[dict[str, Any]] = [
        {
            "variant": variant,
            "path": PATHS[variant],
            "stored_bytes": len(files[PATHS[variant]]),
            "file_bytes": len(files[PATHS[variant]]),
            "tolerance": None if variant.startswith("baseline") else 0.01,
            "precision": None,
            "coverage": None,
        }
        for variant in chosen
    ]
    files |= {"reference.json": b"{}"} | dict(contents or {})
    with StagedArtifact(folder) as staged:
        for name, content in files.items():
            path = staged.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return staged.commit(
            {
                "inputs": ids_inputs(100, 24).to_dict(),
                "models": models,
                "reference": "reference.json",
            }
        )
