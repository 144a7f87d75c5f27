"""What the manifest says about an export; the artifact adds the files and their hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from exporter import __version__
from exporter.inputs import ModelInputs
from exporter.verification import Verification

__all__ = ["ModelRecord", "build_manifest"]

_LIBRARIES = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy")


@dataclass(frozen=True)
class ModelRecord:
    """One model file of the artifact.

    Args:
        variant: its name in tables and measurements: ``fp32``, ``baseline``, …
        path: where it lies in the artifact.
        opset: ONNX opset.
        nodes: number of nodes.
        stored_bytes: bytes of its tensors.
        file_bytes: bytes on disk, external data included.
        passes: what each pass did, as plain JSON values.
        verification: the comparison with the source; ``None`` where none is possible,
            and then ``note`` says why.
        reference: what ran the source: ``PyTorch`` or ``the input file``.
        note: what the reader must know about this file.
    """

    variant: str
    path: str
    opset: int
    nodes: int
    stored_bytes: int
    file_bytes: int
    passes: Sequence[Mapping[str, Any]] = ()
    verification: Verification | None = None
    reference: str | None = None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        checked = self.verification
        return {
            "variant": self.variant,
            "path": self.path,
            "opset": self.opset,
            "nodes": self.nodes,
            "stored_bytes": self.stored_bytes,
            "file_bytes": self.file_bytes,
            "note": self.note,
            "passes": [dict(record) for record in self.passes],
            "verification": {"reference": self.reference, **checked.to_dict()}
            if checked
            else {"verdict": "not run"},
        }


def build_manifest(
    *,
    source: Mapping[str, Any],
    scheme: str,
    dedupe: bool,
    layout: Mapping[str, Any] | None,
    unique_bytes: int,
    unshared_bytes: int,
    sharing: Mapping[str, Any],
    inputs: ModelInputs,
    outputs: Sequence[str],
    models: Sequence[ModelRecord],
    notices: Sequence[str],
) -> dict[str, Any]:
    """Return the manifest's content, less schema and files, in reading order.

    It holds no time and no place, so that the same input gives the same manifest.
    """
    main = models[0]
    verdict = main.verification.verdict.status if main.verification else "not run"
    return {
        "tool": {"name": "albert-export", "version": __version__},
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
        "source": dict(source),
        "verdict": verdict,
        "scheme": scheme,
        "dedupe": dedupe,
        "layout": dict(layout) if layout else None,
        "unique_bytes": unique_bytes,
        "stored_bytes": main.stored_bytes,
        "file_bytes": main.file_bytes,
        "unshared_bytes": unshared_bytes,
        "ratio": round(unshared_bytes / main.stored_bytes, 3) if main.stored_bytes else None,
        "worst_abs_error": main.verification.to_dict()["worst_abs_error"]
        if main.verification
        else None,
        "inputs": inputs.to_dict(),
        "outputs": list(outputs),
        "models": [record.to_dict() for record in models],
        "sharing": dict(sharing),
        "notices": list(notices),
    }
