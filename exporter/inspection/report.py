"""What an inspection found, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from exporter.inspection.duplicates import CopyGroup
from exporter.inspection.reach import QuantizerReach
from exporter.inspection.structure import OperatorCount, RolledLoop
from exporter.transfer import TransferBytes

__all__ = ["INSPECTION_SCHEMA", "Inspection", "ModelInspection", "allowed_waste_bytes"]

INSPECTION_SCHEMA = 2

_RELATIVE_ALLOWANCE = 0.001
_FIXED_ALLOWANCE_BYTES = 16_384

_NEGLIGIBLE_BYTES = 256
"""Copies of less are left out where people read: two equal shapes or axes, which several nodes
happen to need, are nobody's lost sharing."""


def allowed_waste_bytes(stored_bytes: int) -> int:
    """Copies a file may hold and still count as shared: 0.1 % and 16 KiB, for small constants."""
    return int(stored_bytes * _RELATIVE_ALLOWANCE) + _FIXED_ALLOWANCE_BYTES


@dataclass(frozen=True)
class ModelInspection:
    """One model file.

    Args:
        path: the file, as it was asked for.
        variant: its name in the artifact's manifest, if it is in one.
        verdict: the manifest's: ``passed``, ``failed``, ``not run``.
        coverage: the manifest's: how far the file's precision reached, and what it left.
        errors_by_depth: the manifest's: relative errors after fewer passes through the layers.
        opset: version of the standard operators; ``None`` if it uses none.
        nodes: number of nodes, each body once.
        tensors: number of stored tensors.
        stored_bytes: their bytes.
        file_bytes: of the file and its external data.
        annotation_bytes: of that, doc strings and metadata.
        unused_bytes: of the stored bytes, tensors that nothing reads.
        transfer: compressed sizes; ``None`` if not asked for.
        copies: tensors stored more than once, the largest waste first.
        operators: what the nodes are.
        functions: nodes of each function.
        rolled: the loops.
        quantizer: which weights a quantizer would miss.
        repair: the command that would repair it; ``None`` if there is nothing to repair.
    """

    path: str
    variant: str | None
    verdict: str | None
    coverage: Mapping[str, Any] | None
    errors_by_depth: tuple[Mapping[str, Any], ...]
    opset: int | None
    nodes: int
    tensors: int
    stored_bytes: int
    file_bytes: int
    annotation_bytes: int
    unused_bytes: int
    transfer: TransferBytes | None
    copies: tuple[CopyGroup, ...]
    operators: tuple[OperatorCount, ...]
    functions: Mapping[str, int]
    rolled: tuple[RolledLoop, ...]
    quantizer: QuantizerReach
    repair: str | None

    @property
    def wasted_bytes(self) -> int:
        """Stored bytes that are copies of others."""
        return sum(group.wasted_bytes for group in self.copies)

    @property
    def notable_copies(self) -> tuple[CopyGroup, ...]:
        """The copies worth a look: of a shared file, those that waste more than 256 bytes."""
        if not self.is_shared:
            return self.copies
        return tuple(group for group in self.copies if group.wasted_bytes > _NEGLIGIBLE_BYTES)

    @property
    def unique_bytes(self) -> int:
        """Stored bytes without copies: equal tensors once, a matrix and its transpose once,
        packed tensors not at all where their parts are stored."""
        return self.stored_bytes - self.wasted_bytes

    @property
    def is_shipped(self) -> bool:
        """Whether it is meant for use: the unshared baselines are made for measuring alone."""
        return not (self.variant or "").startswith("baseline")

    @property
    def is_shared(self) -> bool:
        """Whether it holds no more copies than :func:`allowed_waste_bytes`."""
        return self.wasted_bytes <= allowed_waste_bytes(self.stored_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "path": self.path,
            "variant": self.variant,
            "verdict": self.verdict,
            "coverage": self.coverage,
            "errors_by_depth": list(self.errors_by_depth),
            "opset": self.opset,
            "nodes": self.nodes,
            "tensors": self.tensors,
            "unique_bytes": self.unique_bytes,
            "stored_bytes": self.stored_bytes,
            "wasted_bytes": self.wasted_bytes,
            "file_bytes": self.file_bytes,
            "annotation_bytes": self.annotation_bytes,
            "unused_bytes": self.unused_bytes,
            "transfer": self.transfer.to_dict() if self.transfer else None,
            "copies": [group.to_dict() for group in self.copies],
            "operators": [count.to_dict() for count in self.operators],
            "functions": dict(self.functions),
            "rolled": [loop.to_dict() for loop in self.rolled],
            "quantizer": self.quantizer.to_dict(),
            "repair": self.repair,
        }


@dataclass(frozen=True)
class Inspection:
    """What lies at a path.

    Args:
        path: as it was asked for.
        kind: a model file, a folder of them, or an artifact, whose hashes were checked.
        scheme: the artifact's sharing scheme.
        verdict: the artifact's.
        models: its model files.
        early_exit: the manifest's: ``rule``, and ``calibrated``: per model ``data`` and ``value``,
            ``None`` where that never leaves. ``None`` where no model can leave early.
    """

    path: str
    kind: Literal["file", "folder", "artifact"]
    scheme: str | None
    verdict: str | None
    models: tuple[ModelInspection, ...]
    early_exit: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; all sizes are integers of bytes. Keys keep their meaning.

        ::

            {"schema": 2, "path": …, "kind": "file" | "folder" | "artifact",
             "artifact": null | {"scheme": …, "verdict": …, "hashes": "passed",
                                 "early_exit": null | {"rule", "calibrated":
                                     {variant: {"data", "value": null if it never leaves}}}},
             "models": [{
               "path", "variant", "verdict",
               "coverage": null | {"operations_reached", "operations_total", "bytes_reached",
                                   "bytes_total", "bytes_share", "full",
                                   "skipped": [{"value", "reason", "nbytes", "on_purpose"}]},
               "errors_by_depth": [{"uses", "relative_error"}],
               "opset", "nodes", "tensors",
               "unique_bytes", "stored_bytes", "wasted_bytes", "file_bytes",
               "annotation_bytes", "unused_bytes",
               "transfer": null | {"brotli_bytes", "gzip_bytes"},
               "copies": [{"kinds": ["exact" | "transposed" | "packed" | "aliased" |
                                     "constant", …],
                           "dtype", "shape": […], "wasted_bytes", "packed_from": [name, …],
                           "tensors": [{"name", "graph", "place", "stored_bytes",
                                        "behind": [operator, …], "uses", "overridable",
                                        "transposed"}]}],
               "operators": [{"operator", "top_level", "in_bodies", "in_functions"}],
               "functions": {name: nodes},
               "rolled": [{"name", "graph", "iterations", "depth_input", "nodes", "carried",
                           "scanned", "stacked_bytes", "stacks": [name, …]}],
               "quantizer": {"operations", "reached_operations", "reduced_operations",
                             "weight_bytes", "reached_bytes", "reduced_bytes",
                             "by_operator": {operator: {"reached", "missed", "reduced"}},
                             "missed_reasons": {reason: operations},
                             "missed": [{"name", "operator", "graph", "weights": [name, …],
                                         "weight_bytes", "reason"}]},
               "repair": null | command}]}
        """
        artifact = None
        if self.kind == "artifact":
            artifact = {
                "scheme": self.scheme,
                "verdict": self.verdict,
                "hashes": "passed",
                "early_exit": self.early_exit,
            }
        return {
            "schema": INSPECTION_SCHEMA,
            "path": self.path,
            "kind": self.kind,
            "artifact": artifact,
            "models": [model.to_dict() for model in self.models],
        }
