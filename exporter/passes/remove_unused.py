"""Remove nodes and initializers that no output depends on."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import inner_graphs

__all__ = ["RemoveUnusedPass"]


class RemoveUnusedPass(ReportingPass):
    """Keep what the outputs need, drop the rest.

    ::

        W = [1, 2]
        a = Add(x, W)    ->    y = Abs(x)
        y = Abs(x)

    1. In the main graph, inner graphs and functions. A value that only a removed node's
       inner graph reads is unused too, and so is an initializer that nobody reads in an
       inner graph. (``onnx_ir``'s own pass leaves both.)
    2. Inputs and outputs of every graph stay, initializers among them as well.
    3. Optional outputs of a used node stay.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Rewrite the main graph and every function."""
        roots: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
        for root in roots:
            needed: set[ir.Node] = set()
            read: set[ir.Value] = set()
            _mark(list(root.outputs), needed, read)
            self._sweep(root, needed, read)

    def _sweep(
        self, graph: ir.Graph | ir.Function, needed: set[ir.Node], read: set[ir.Value]
    ) -> None:
        for node in reversed(graph):
            if node not in needed:
                _detach_inner(node)
                graph.remove(node, safe=True)
                self.matches.append(Match(str(node.name), f"{node.op_type} without a user"))
        for inner in inner_graphs(graph):
            self._sweep(inner, needed, read)
        if not isinstance(graph, ir.Graph):
            return
        for name, value in list(graph.initializers.items()):
            if value in read or value.is_graph_input() or value.is_graph_output():
                continue
            del graph.initializers[name]
            saved = value.const_value.nbytes if value.const_value is not None else 0
            self.matches.append(Match(name, "initializer without a user", saved))


def _mark(pending: list[ir.Value], needed: set[ir.Node], read: set[ir.Value]) -> None:
    while pending:
        value = pending.pop()
        read.add(value)
        node = value.producer()
        if node is None or node in needed:
            continue
        needed.add(node)
        pending.extend(source for source in node.inputs if source is not None)
        # An inner graph's outputs are all needed once its node is.
        for inner in inner_graphs([node]):
            pending.extend(inner.outputs)


def _detach_inner(node: ir.Node) -> None:
    """Let go of the outer values that the graphs of ``node`` read."""
    for graph in inner_graphs([node]):
        for user in graph.all_nodes():
            for index in range(len(user.inputs)):
                user.replace_input_with(index, None)
