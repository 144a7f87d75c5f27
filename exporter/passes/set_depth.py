"""Change how often rolled loops run."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from exporter.errors import PassError
from exporter.passes.blocks.loops import CountedLoop, counted_loops, replace_trip_count
from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import Names

__all__ = ["SetDepthPass"]


class SetDepthPass(ReportingPass):
    """Set the trip counts of rolled loops whose iterations are all alike.

    ::

        Loop(trip_count = 2, …)     ->     Loop(trip_count = 12, …)

    A deep model of shared layers can so be captured with few layers and given its depth
    afterwards. A loop of that depth is left alone.

    Args:
        depth: number of iterations, 1 or more; one for each loop, in their order, where
            there are several.

    Raises:
        PassError: a depth is below 1; there are not as many loops of a constant number of
            iterations as depths; iterations differ in stacked constants, or single ones are
            scanned, so that other iterations would lack theirs.
    """

    def __init__(self, depth: int | Sequence[int]) -> None:
        super().__init__()
        self._depths = [depth] if isinstance(depth, int) else list(depth)
        if wrong := [depth for depth in self._depths if depth < 1]:
            raise PassError(f"depth must be 1 or more, not {wrong[0]}")

    def rewrite(self, model: ir.Model) -> None:
        """Replace the trip counts."""
        loops = [loop for loop in counted_loops(model.graph) if loop.count is not None]
        wanted = len(self._depths)
        if len(loops) != wanted:
            needed = "one rolled loop" if wanted == 1 else f"{wanted} rolled loops"
            raise PassError(f"setting the depth needs {needed}, this model has {len(loops)}")
        for loop, depth in zip(loops, self._depths, strict=True):
            if loop.count != depth:
                self._set(model, loop, depth)

    def _set(self, model: ir.Model, loop: CountedLoop, depth: int) -> None:
        if loop.uses_iteration:
            raise PassError(
                f"depth cannot become {depth}: layers have constants of their own, and "
                f"there are {loop.count}; capture the model at its full depth"
            )
        if loop.scanned:
            raise PassError(
                f"depth cannot become {depth}: outputs of single layers are asked for, and "
                f"there are {loop.count} layers; capture the model at its full depth"
            )
        name = Names(model).fresh(str(loop.trip_count.name))
        replace_trip_count(model.graph, loop, depth, name)
        self.matches.append(Match(str(loop.node.name), f"{loop.count} iterations became {depth}"))
