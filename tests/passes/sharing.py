"""The sequence of passes that makes weights canonical and stores each once."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from exporter.passes.fold_weight_transforms import FoldWeightTransformsPass
from exporter.passes.lift_constants import LiftConstantsPass
from exporter.passes.merge_transposed_twins import MergeTransposedTwinsPass
from exporter.passes.remove_identities import RemoveIdentitiesPass
from exporter.passes.remove_unused import RemoveUnusedPass

__all__ = ["SHARING_PASSES", "restore_sharing"]

SHARING_PASSES: tuple[type[ir.passes.PassBase], ...] = (
    RemoveIdentitiesPass,
    LiftConstantsPass,
    FoldWeightTransformsPass,
    MergeTransposedTwinsPass,
    DeduplicateInitializersPass,
    RemoveUnusedPass,
)


def restore_sharing() -> ir.passes.PassManager:
    """All of them, until nothing changes."""
    return ir.passes.PassManager([make() for make in SHARING_PASSES], steps=5)
