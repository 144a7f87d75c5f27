"""Make the number of applied layers an optional input."""

from __future__ import annotations

import onnx_ir as ir

from exporter.errors import PassError
from exporter.passes.blocks.loops import counted_loops, replace_trip_count
from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import Names

__all__ = ["MakeDepthElasticPass"]


class MakeDepthElasticPass(ReportingPass):
    """Turn the trip count of the one rolled loop into an optional graph input.

    ::

        model(ids)                          model(ids, depth = 12)
        Loop(trip_count = 12, …)     ->     Loop(depth, …)

    1. The input is ``int64 []``, comes last, and has the depth so far as its default: it
       stays an initializer, which a caller may override with any number from 0.
    2. Where layers differ in stacked constants, a number above the default is an error of the
       runtime: there are no constants for those layers.
    3. A loop whose trip count is an input already is left alone.

    Args:
        name: name of the input.

    Raises:
        PassError: there is no loop of a constant number of iterations, or more than one; it
            scans values of single layers, which a lower depth would not compute; the name is
            taken.
    """

    def __init__(self, name: str = "depth") -> None:
        super().__init__()
        self._name = name

    def rewrite(self, model: ir.Model) -> None:
        """Rename the trip count and list it as an input."""
        graph = model.graph
        loops = counted_loops(graph)
        if len(loops) != 1:
            raise PassError(
                f"an elastic depth needs one rolled loop, this model has {len(loops)}; "
                "roll its layers first, and share one layer among all"
            )
        loop = loops[0]
        if loop.trip_count.is_graph_input():
            return
        if loop.count is None:
            raise PassError("an elastic depth needs a constant trip count, this one is computed")
        if loop.scanned:
            raise PassError(
                "depth cannot be an input while outputs of single layers are asked for: a lower "
                "depth would not compute them; export without hidden states"
            )
        if Names(model).fresh(self._name) != self._name:
            raise PassError(f"depth cannot be an input: the name {self._name!r} is taken")
        depth = replace_trip_count(graph, loop, loop.count, self._name)
        graph.inputs.append(depth)
        detail = f"iterations are the input {self._name!r}, {loop.count} by default"
        self.matches.append(Match(str(loop.node.name), detail))
