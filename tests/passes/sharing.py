"""The passes that keep and restore sharing, one by one and as the exporter runs them."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from exporter.passes.fold_weight_transforms import FoldWeightTransformsPass
from exporter.passes.lift_constants import LiftConstantsPass
from exporter.passes.merge_equal_nodes import MergeEqualNodesPass
from exporter.passes.merge_packed_copies import MergePackedCopiesPass
from exporter.passes.merge_transposed_twins import MergeTransposedTwinsPass
from exporter.passes.recipes import share_recipe
from exporter.passes.remove_identities import RemoveIdentitiesPass
from exporter.passes.remove_unused import RemoveUnusedPass

__all__ = ["SHARING_PASSES", "restore_sharing"]

SHARING_PASSES: tuple[type[ir.passes.PassBase], ...] = (
    RemoveIdentitiesPass,
    LiftConstantsPass,
    FoldWeightTransformsPass,
    DeduplicateInitializersPass,
    MergeTransposedTwinsPass,
    MergePackedCopiesPass,
    MergeEqualNodesPass,
    RemoveUnusedPass,
)


def restore_sharing() -> ir.passes.PassManager:
    """The exporter's sequence of them, as one pass that runs until nothing changes."""
    (stage,) = share_recipe()
    return ir.passes.PassManager([step.transformation for step in stage.steps], stage.rounds)
