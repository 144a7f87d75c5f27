"""Change how often the one rolled loop runs."""

from __future__ import annotations

import onnx_ir as ir

from exporter.errors import PassError
from exporter.passes.blocks.loops import counted_loops, replace_trip_count
from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import Names

__all__ = ["SetDepthPass"]


class SetDepthPass(ReportingPass):
    """Set the trip count of the one rolled loop, whose iterations are all alike.

    ::

        Loop(trip_count = 3, …)     ->     Loop(trip_count = 12, …)

    A deep model of one shared layer can so be captured with few layers and given its depth
    afterwards. A loop of that depth is left alone.

    Args:
        depth: number of iterations, 1 or more.

    Raises:
        PassError: the depth is below 1; there is no loop of a constant number of iterations,
            or more than one; iterations differ in stacked constants, or single ones are
            scanned, so that other iterations would lack theirs.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        if depth < 1:
            raise PassError(f"depth must be 1 or more, not {depth}")
        self._depth = depth

    def rewrite(self, model: ir.Model) -> None:
        """Replace the trip count."""
        loops = [loop for loop in counted_loops(model.graph) if loop.count is not None]
        if len(loops) != 1:
            raise PassError(f"setting the depth needs one rolled loop, this model has {len(loops)}")
        loop = loops[0]
        if loop.count == self._depth:
            return
        if loop.uses_iteration:
            raise PassError(
                f"depth cannot become {self._depth}: layers have constants of their own, and "
                f"there are {loop.count}; capture the model at its full depth"
            )
        if loop.scanned:
            raise PassError(
                f"depth cannot become {self._depth}: outputs of single layers are asked for, and "
                f"there are {loop.count} layers; capture the model at its full depth"
            )
        name = Names(model).fresh(str(loop.trip_count.name))
        replace_trip_count(model.graph, loop, self._depth, name)
        detail = f"{loop.count} iterations became {self._depth}"
        self.matches.append(Match(str(loop.node.name), detail))
