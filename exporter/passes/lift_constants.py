"""Turn ``Constant`` nodes into initializers, where the other passes look for weights."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import all_graphs

__all__ = ["LiftConstantsPass"]

_TENSOR_ATTRIBUTES = frozenset(
    {
        "value",
        "value_float",
        "value_floats",
        "value_int",
        "value_ints",
        "value_string",
        "value_strings",
    }
)


class LiftConstantsPass(ReportingPass):
    """Replace each ``Constant`` node by an initializer of its graph, under the same name.

    ::

        C = Constant <value = float[40,50] {…}> ()        C = float[40,50] {…}
        y = Add(x, C)                               ->    y = Add(x, C)

    1. Of any size and of each kind of dense value, in the main graph and inner graphs:
       equal ones can then be merged, and large ones are seen.
    2. Stays: a ``Constant`` that is an output of its graph, a sparse one, one that reads
       an attribute of its function, and one directly in a function, which cannot hold
       initializers.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Rewrite every graph that can hold initializers."""
        for graph in all_graphs(model):
            for node in graph:
                if node.op_type != "Constant" or node.domain:
                    continue
                if not isinstance(graph, ir.Graph):
                    self.skipped.append(Skip(str(node.outputs[0].name), "is in a function"))
                elif reason := _reason_to_skip(node):
                    self.skipped.append(Skip(str(node.outputs[0].name), reason))
                else:
                    self._lift(graph, node)

    def _lift(self, graph: ir.Graph, node: ir.Node) -> None:
        old = node.outputs[0]
        tensor = ir.convenience.get_const_tensor(old)
        assert tensor is not None
        initializer = ir.Value(
            name=old.name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
            metadata_props=dict(old.metadata_props),
        )
        old.replace_all_uses_with(initializer)
        graph.remove(node, safe=True)
        graph.register_initializer(initializer)
        self.matches.append(Match(str(old.name), "became an initializer"))


def _reason_to_skip(node: ir.Node) -> str | None:
    if node.outputs[0].is_graph_output():
        return "is a graph output"
    if len(node.attributes) != 1:
        return f"has {len(node.attributes)} attributes, not one"
    name, attribute = next(iter(node.attributes.items()))
    if attribute.is_ref():
        return "reads an attribute of its function"
    return None if name in _TENSOR_ATTRIBUTES else f"{name} is no dense tensor"
