"""Remove ``Identity`` nodes, behind which exporters hide shared weights."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import all_graphs

__all__ = ["RemoveIdentitiesPass"]


class RemoveIdentitiesPass(ReportingPass):
    """Let users of an ``Identity`` read its input.

    ::

        A = Identity(W)
        y = MatMul(x, W)          y = MatMul(x, W)
        z = MatMul(y, A)    ->    z = MatMul(y, W)

    1. Chains go too, and so do aliases that are read in inner graphs.
    2. An ``Identity`` whose output is an output of its graph stays: it may be what gives one
       value two output names, or what brings an outer value into a branch's outputs.
       (``onnx_ir``'s own pass renames the input there, which is wrong in both cases.)
    """

    def rewrite(self, model: ir.Model) -> None:
        """Rewrite every graph and function."""
        for graph in all_graphs(model):
            for node in graph:
                if node.op_type != "Identity" or node.domain:
                    continue
                source, alias = node.inputs[0], node.outputs[0]
                if source is None:
                    continue
                if alias.is_graph_output():
                    self.skipped.append(Skip(str(alias.name), "is a graph output"))
                    continue
                if source.type is None:
                    source.type = alias.type
                if source.shape is None:
                    source.shape = alias.shape
                alias.replace_all_uses_with(source)
                graph.remove(node, safe=True)
                self.matches.append(Match(str(alias.name), f"replaced by {source.name!r}"))
