"""Which passes run, in which order, and the check after each.

The sharing contract: once weights are de-duplicated, no pass may let the graph store
more than its unique bytes and a stated overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import PassBase
from onnx_ir.passes.common import RemoveUnusedNodesPass

from exporter.accounting import GraphBytes, count_graph
from exporter.errors import PassError
from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from exporter.passes.strip_export_traces import StripExportTracesPass

__all__ = ["PassRecord", "SharingContract", "Step", "capture_recipe", "run_recipe"]


@dataclass(frozen=True)
class Step:
    """One pass of a recipe, and why it stands where it stands."""

    transformation: PassBase
    why: str


@dataclass(frozen=True)
class SharingContract:
    """How many tensor bytes a graph may store.

    Args:
        unique_bytes: bytes of the distinct weights of the source.
    """

    unique_bytes: int

    RELATIVE_OVERHEAD = 0.001
    FIXED_OVERHEAD_BYTES = 16_384

    @property
    def limit_bytes(self) -> int:
        """Unique bytes, 0.1 % and 16 KiB: room for shape constants and masks."""
        return int(self.unique_bytes * (1 + self.RELATIVE_OVERHEAD)) + self.FIXED_OVERHEAD_BYTES


@dataclass(frozen=True)
class PassRecord:
    """What one pass did, in bytes and nodes."""

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    stored_bytes_before: int
    stored_bytes_after: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def capture_recipe(*, dedupe: bool) -> tuple[Step, ...]:
    """Return the passes for a freshly captured graph."""
    steps = [
        Step(
            StripExportTracesPass(),
            "first: stack traces and source paths must reach no file, whatever follows",
        )
    ]
    if dedupe:
        steps += [
            Step(
                DeduplicateInitializersPass(),
                "the exporter stores one copy per Parameter object, even over one storage",
            ),
            Step(
                RemoveUnusedNodesPass(),
                "last: drops what the passes before left without a user",
            ),
        ]
    return tuple(steps)


def run_recipe(
    model: ir.Model, steps: Sequence[Step], contract: SharingContract | None
) -> tuple[PassRecord, ...]:
    """Run ``steps`` on ``model`` in place, checking ``contract`` after each.

    A graph that starts above the contract's limit may only shrink; one that has reached
    it must stay below; at the end all must.

    Raises:
        PassError: a pass failed or broke the contract; the text names the tensors.
    """
    records = []
    before = count_graph(model)
    for step in steps:
        name = type(step.transformation).__name__
        try:
            result = step.transformation(model)
        except Exception as error:
            raise PassError(f"{name} failed: {error}") from error
        after = count_graph(model)
        if contract is not None and after.stored_bytes > max(
            contract.limit_bytes, before.stored_bytes
        ):
            raise PassError(_broken(name, after, contract))
        records.append(
            PassRecord(
                name=name,
                modified=result.modified,
                nodes_before=before.nodes,
                nodes_after=after.nodes,
                stored_bytes_before=before.stored_bytes,
                stored_bytes_after=after.stored_bytes,
            )
        )
        before = after
    if contract is not None and before.stored_bytes > contract.limit_bytes:
        raise PassError(_broken("the recipe", before, contract))
    return tuple(records)


def _broken(name: str, count: GraphBytes, contract: SharingContract) -> str:
    culprits = "; ".join(
        f"{' = '.join(group.names[:3])} ({group.wasted_bytes:,} bytes)"
        for group in count.duplicates[:3]
        if group.wasted_bytes
    )
    largest = culprits or "no tensor is stored twice: weights were expanded or transformed"
    return (
        f"sharing is lost after {name}: {count.stored_bytes:,} bytes stored, at most "
        f"{contract.limit_bytes:,} expected for {contract.unique_bytes:,} unique bytes; {largest}"
    )
