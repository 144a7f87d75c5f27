"""Which runs are worth a loop, and why others are not."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from exporter.passes.blocks.constants import constant_tensor
from exporter.passes.blocks.verify import BlockRun

__all__ = ["DEFAULT_STACKED_BYTES", "Refusal", "RollPolicy", "judge", "pays_off"]

DEFAULT_STACKED_BYTES = 1 << 20
"""Room for norms, biases and rank-8 adapters of a layer of width 768; 4 % of its weights."""

_MINIMUM_WEIGHTLESS_SAVING = 16


@dataclass(frozen=True)
class RollPolicy:
    """Which runs are worth a loop.

    Args:
        max_stacked_bytes: most bytes per block of constants that differ between blocks. None
            stands for 1 MiB, and no more than a third of the bytes that the blocks share: a
            run where most differs is no shared layer.
    """

    max_stacked_bytes: int | None = None

    def limit_bytes(self, shared_bytes: int) -> int:
        """Return the limit for blocks that share ``shared_bytes``."""
        if self.max_stacked_bytes is not None:
            return self.max_stacked_bytes
        return min(DEFAULT_STACKED_BYTES, shared_bytes // 3)


@dataclass(frozen=True)
class Refusal:
    """A run that was found but stays as it is."""

    run: BlockRun
    reason: str


def judge(run: BlockRun, policy: RollPolicy) -> BlockRun | Refusal | None:
    """Return ``run`` if it is to be rolled, else the reason; None if it is too small for one."""
    if not pays_off(run):
        return None
    limit = policy.limit_bytes(run.shared_bytes)
    if run.stacked_bytes > limit:
        return Refusal(run, _over_limit(run, limit))
    return run


def pays_off(run: BlockRun) -> bool:
    """Whether a loop leaves fewer nodes; by 16 at least where the blocks share no weight."""
    loop = 2 + len(run.stacked) + sum(len(tap.blocks) for tap in run.taps)  # nodes it adds
    saved = (run.count - 1) * run.width - loop
    return saved >= (1 if _has_weight(run) else _MINIMUM_WEIGHTLESS_SAVING)


def _over_limit(run: BlockRun, limit: int) -> str:
    largest = max(run.stacked, key=lambda values: _tensor_bytes(values[0]))
    return (
        f"{run.count} blocks of {run.width} nodes differ in {len(run.stacked)} tensors, "
        f"{run.stacked_bytes:,} bytes per iteration, limit {limit:,}; "
        f"the largest is {largest[0].name} ({_tensor_bytes(largest[0]):,} bytes)"
    )


def _tensor_bytes(value: ir.Value) -> int:
    tensor = constant_tensor(value)
    return 0 if tensor is None else tensor.nbytes


def _has_weight(run: BlockRun) -> bool:
    """Whether blocks share a constant, or what is made of one, of two dimensions or more."""
    return any(_is_weight(value) for value in run.shared)


def _is_weight(value: ir.Value) -> bool:
    while (tensor := constant_tensor(value)) is None:
        node = value.producer()
        if node is None or not node.inputs or node.inputs[0] is None:
            return False
        if any(v is not None and constant_tensor(v) is None for v in node.inputs[1:]):
            return False
        value = node.inputs[0]
    return sum(size != 1 for size in tuple(tensor.numpy().shape)) >= 2
