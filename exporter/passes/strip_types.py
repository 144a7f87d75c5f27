"""Drop the types of intermediate values."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import all_graphs

__all__ = ["StripTypesPass"]


class StripTypesPass(ReportingPass):
    """Drop types and shapes of the values between nodes.

    ::

        float[batch, 768] y = MatMul(x, W)    ->    y = MatMul(x, W)

    1. Inputs, outputs and initializers keep theirs, those of bodies and branches included:
       the file needs them.
    2. Every runtime infers the others when it loads the file. They matter where the weights
       are small: 25 KB in an ALBERT-base with all layers written out.
    3. A value made by an operator outside of ONNX's own domain keeps its type: nothing but
       that operator's runtime could infer it.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Forget the type and shape of every other value."""
        count = 0
        for graph in all_graphs(model):
            for node in graph:
                for value in node.outputs:
                    if node.domain or value.is_graph_output():
                        continue
                    if value.type is not None or value.shape is not None:
                        value.type, value.shape = None, None
                        count += 1
        if count:
            self.matches.append(Match("types", f"{count:,} values lost theirs"))
