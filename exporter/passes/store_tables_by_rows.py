"""Store looked-up tables the way they are looked up."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import Names, all_graphs, owner
from exporter.passes.views import View, apply_view

__all__ = ["StoreTablesByRowsPass"]

_TRANSPOSED = View("transpose", (1, 0))


class StoreTablesByRowsPass(ReportingPass):
    """Turn a matrix over whose rows are looked up only after a ``Transpose``.

    ::

        E [D, V]                                 E [V, D]
        Gather(Transpose(E), ids)        ->      Gather(E, ids)
        MatMul(h, E)                             MatMul(h, Transpose(E))

    1. A tied table so reads like any other: rows are looked up, and its product is with the
       transpose. In the other form no precision could store it by rows.
    2. Every ``Transpose`` of it goes; what used it untransformed reads one ``Transpose`` at the
       front of its graph.
    3. Left: what is also looked up untransformed, is no matrix, an input or an output.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Look at every initializer of every graph."""
        names = Names(model)
        graphs = [graph for graph in all_graphs(model) if isinstance(graph, ir.Graph)]
        for graph in graphs:  # functions store nothing
            for weight in list(graph.initializers.values()):
                if _is_turned(weight):
                    self._turn(weight, names)

    def _turn(self, weight: ir.Value, names: Names) -> None:
        assert weight.const_value is not None
        uses = list(weight.uses())
        turned = apply_view(_TRANSPOSED, weight.const_value)
        assert not isinstance(turned, str)
        turned.name = weight.name
        weight.const_value = turned
        weight.shape = ir.Shape(turned.shape.numpy())
        direct = [(node, index) for node, index in uses if not _is_transpose(node)]
        for node in {node: None for node, _ in uses if _is_transpose(node)}:
            node.outputs[0].replace_all_uses_with(weight)
            assert node.graph is not None
            node.graph.remove(node, safe=True)
        if direct:
            graph = owner(weight)
            name = names.fresh(f"{weight.name}_transposed")
            back = ir.Node("", "Transpose", [weight], [ir.AttrInt64s("perm", (1, 0))], name=name)
            back.outputs[0].name = names.fresh(f"{weight.name}_columns")
            first = next(iter(graph))
            graph.insert_before(first, back)
            for node, index in direct:
                node.replace_input_with(index, back.outputs[0])
        detail = f"stored by rows, for lookups; {len(direct)} other uses transpose it"
        self.matches.append(Match(str(weight.name), detail))


def _is_turned(weight: ir.Value) -> bool:
    tensor = weight.const_value
    if tensor is None or len(tensor.shape) != 2:
        return False
    if weight.is_graph_input() or weight.is_graph_output():
        return False
    turned = False
    for node, index in weight.uses():
        if _is_lookup(node, index):
            return False
        if _is_transpose(node):
            if node.outputs[0].is_graph_output():
                return False
            turned |= any(_is_lookup(*use) for use in node.outputs[0].uses())
    return turned


def _is_lookup(node: ir.Node, index: int) -> bool:
    plain = node.op_type == "Gather" and not node.domain and index == 0
    return plain and node.attributes.get_int("axis", 0) == 0


def _is_transpose(node: ir.Node) -> bool:
    if node.op_type != "Transpose" or node.domain:
        return False
    return list(node.attributes.get_ints("perm", (1, 0))) == [1, 0]
