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

EXACT_TOLERANCE = 1e-4
"""Relative error of another runtime in float32: it adds in another order."""

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
        precision: how its weights are stored, as plain JSON values; ``None``: in float32.
        coverage: how far the precision reached.
        weights: the error of each weight that is stored otherwise.
        errors_by_depth: relative error of the model after 1, 2, … passes through its layers.
        notices: what a person should know about its weights.
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
    precision: Mapping[str, Any] | None = None
    coverage: Mapping[str, Any] | None = None
    weights: Sequence[Mapping[str, Any]] = ()
    errors_by_depth: Sequence[Mapping[str, Any]] = ()
    notices: Sequence[str] = ()

    @property
    def tolerance(self) -> float | None:
        """Relative error that another runtime may have against the reference vectors."""
        if self.verification is None:
            return None
        return EXACT_TOLERANCE if self.precision is None else self.precision["tolerance"]

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
            "tolerance": self.tolerance,
            "note": self.note,
            "notices": list(self.notices),
            "precision": self.precision,
            "coverage": self.coverage,
            "weights": [dict(weight) for weight in self.weights],
            "errors_by_depth": [dict(error) for error in self.errors_by_depth],
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
    graph: ModelRecord,
    models: Sequence[ModelRecord],
    reference: str | None,
    notices: Sequence[str],
    early_exit: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the manifest's content, less schema and files, in reading order.

    ``graph`` is the model in float32, which the sizes and the error at the top are of; where
    it is none of ``models`` its record stands apart. ``reference`` names the file of
    reference vectors. ``early_exit`` is ``{"rule", "input", "never", "layers"}``: the rule, the
    input that sets it, its default, and the number of passes; ``null`` without an early exit.

    It holds no time and no place, so that the same input gives the same manifest.
    """
    checks = [one.verification for one in (graph, *models) if one.verification is not None]
    failed = any(check.verdict.status == "failed" for check in checks)
    return {
        "tool": {"name": "albert-export", "version": __version__},
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
        "source": dict(source),
        "verdict": "failed" if failed else "passed" if checks else "not run",
        "scheme": scheme,
        "dedupe": dedupe,
        "layout": dict(layout) if layout else None,
        "unique_bytes": unique_bytes,
        "stored_bytes": graph.stored_bytes,
        "file_bytes": graph.file_bytes,
        "unshared_bytes": unshared_bytes,
        "ratio": round(unshared_bytes / graph.stored_bytes, 3) if graph.stored_bytes else None,
        "worst_abs_error": graph.verification.to_dict()["worst_abs_error"]
        if graph.verification
        else None,
        "inputs": inputs.to_dict(),
        "outputs": list(outputs),
        "reference": reference,
        "early_exit": dict(early_exit) if early_exit else None,
        "models": [record.to_dict() for record in models],
        "float_graph": None if graph in models else graph.to_dict(),
        "sharing": dict(sharing),
        "notices": list(notices),
    }
