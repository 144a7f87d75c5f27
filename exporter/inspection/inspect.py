"""Inspect a model file, a folder of them, or an artifact. Needs neither torch nor onnxruntime."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.accounting import iter_graphs
from exporter.artifact import MANIFEST_NAME, Artifact
from exporter.errors import CheckpointError
from exporter.inspection.duplicates import find_copies
from exporter.inspection.quantizability import find_weight_operations
from exporter.inspection.reach import QuantizerReach
from exporter.inspection.report import Inspection, ModelInspection, allowed_waste_bytes
from exporter.inspection.structure import (
    annotation_bytes,
    count_functions,
    count_operators,
    find_loops,
)
from exporter.inspection.tensors import graph_labels, read_entries
from exporter.onnx_files import external_files, read_model
from exporter.transfer import measure_transfer

__all__ = ["inspect_path"]

Progress = Callable[[str], None]


def inspect_path(
    path: Path, *, transfer: bool = True, progress: Progress = lambda step: None
) -> Inspection:
    """Inspect what lies at ``path``; nothing is changed.

    Args:
        path: an ONNX file, a folder with ONNX files in it or in its ``onnx`` folder, or an
            artifact, whose files are then also compared with their hashes.
        transfer: also compress the files, to tell what a download takes.
        progress: called at the start of each step.

    Raises:
        CheckpointError: no ONNX model, a damaged one, or a folder without one.
        ArtifactError: an artifact whose files are not those of its manifest.
    """
    if path.is_dir() and (path / MANIFEST_NAME).exists():
        progress("comparing the files with their hashes")
        artifact = Artifact.load(path, check_hashes=True)
        models = tuple(
            _inspect_file(path / record["path"], record, transfer, progress)
            for record in artifact.manifest["models"]
        )
        scheme, verdict = (artifact.manifest.get(key) for key in ("scheme", "verdict"))
        early_exit = _early_exit(artifact.manifest)
        return Inspection(str(path), "artifact", scheme, verdict, models, early_exit)
    files = _models_in(path) if path.is_dir() else [path]
    models = tuple(_inspect_file(file, {}, transfer, progress) for file in files)
    return Inspection(str(path), "folder" if path.is_dir() else "file", None, None, models)


def _early_exit(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return by which rule models leave, and the setting that was chosen for each."""
    if (early_exit := manifest.get("early_exit")) is None:
        return None
    chosen = {m["variant"]: c for m in manifest["models"] if (c := m.get("calibration"))}
    return {
        "rule": early_exit["rule"],
        "calibrated": {
            variant: {
                "data": one["data"],
                "value": None if one["value"] == early_exit["never"] else one["value"],
            }
            for variant, one in chosen.items()
        },
    }


def _models_in(folder: Path) -> list[Path]:
    found = sorted(p for p in (*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")) if p.is_file())
    if not found:
        raise CheckpointError(
            f"{folder} holds no .onnx file and no {MANIFEST_NAME}; inspect reads ONNX: "
            f"export a checkpoint first with albert-export {shlex.quote(str(folder))}"
        )
    return found


def _inspect_file(
    path: Path, record: Mapping[str, Any], transfer: bool, progress: Progress
) -> ModelInspection:
    _check_is_onnx(path)
    progress(f"reading {path.name}")
    found, files = _inspect_model(path, record)
    # The model is let go by now, so that its memory is free while the files are compressed.
    return replace(found, transfer=measure_transfer(files, progress)) if transfer else found


def _inspect_model(path: Path, record: Mapping[str, Any]) -> tuple[ModelInspection, list[Path]]:
    model = read_model(path)
    files = [path, *external_files(model)]
    labels = graph_labels(model)
    try:
        entries = list(read_entries(model, labels))
        copies = find_copies(entries)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    quantizer = find_weight_operations(model, labels)
    stored = sum(entry.stored_bytes for entry, _ in entries)
    wasted = sum(group.wasted_bytes for group in copies)
    found = ModelInspection(
        path=str(path),
        variant=record.get("variant"),
        verdict=record.get("verification", {}).get("verdict"),
        coverage=record.get("coverage"),
        errors_by_depth=tuple(record.get("errors_by_depth", ())),
        opset=model.opset_imports.get(""),
        nodes=sum(len(graph) for graph in iter_graphs(model)),
        tensors=len(entries),
        stored_bytes=stored,
        file_bytes=sum(file.stat().st_size for file in files),
        annotation_bytes=annotation_bytes(model),
        unused_bytes=sum(entry.stored_bytes for entry, _ in entries if not entry.uses),
        transfer=None,
        copies=copies,
        operators=count_operators(model),
        functions=count_functions(model),
        rolled=find_loops(model, labels),
        quantizer=quantizer,
        repair=_repair(path) if _needs_repair(stored, wasted, quantizer) else None,
    )
    return found, files


def _needs_repair(stored: int, wasted: int, quantizer: QuantizerReach) -> bool:
    hidden = any(operation.hidden for operation in quantizer.missed)
    return hidden or wasted > allowed_waste_bytes(stored)


def _repair(path: Path) -> str:
    source, output = shlex.quote(str(path)), shlex.quote(f"{path.stem}-onnx")
    return f"albert-export {source} --dedupe -o {output}"


def _check_is_onnx(path: Path) -> None:
    """Refuse what is known to be something else, in words a person can act on.

    Raises:
        CheckpointError: says what it is.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise CheckpointError(f"{path} is empty; copy or download it again")
    if head.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            f"{path} is a git-lfs pointer, not the model: run 'git lfs pull' in its repository"
        )
    if head.startswith(b"PK"):
        raise CheckpointError(
            f"{path} is a zip archive, as PyTorch writes; inspect reads ONNX: export it first "
            f"with albert-export {shlex.quote(str(path))}"
        )
    if head.lstrip()[:1] in (b"<", b"{"):
        raise CheckpointError(f"{path} is text, not a model: it begins with {head[:20]!r}")
