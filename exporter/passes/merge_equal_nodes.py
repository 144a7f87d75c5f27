"""Compute once what nodes of one graph compute alike."""

from __future__ import annotations

import struct
from collections.abc import Hashable

import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import all_graphs

__all__ = ["MergeEqualNodesPass"]

# Operators of other domains may be anything, among them functions that draw numbers.
_DOMAINS = frozenset({"", "com.microsoft"})
_RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


class MergeEqualNodesPass(ReportingPass):
    """Let users of a node read an earlier one of the same operator, inputs and attributes.

    ::

        a = Shape(x); b = Shape(x)          a = Shape(x)
        y = Expand(v, a)              ->    y = Expand(v, a)
        z = Expand(w, b)                    z = Expand(w, a)

    1. In the main graph, inner graphs and functions; only nodes of one graph are compared.
    2. Attributes agree in every bit: ``alpha = 0.0`` is not ``alpha = -0.0``.
    3. Left alone: nodes that give a graph output, which keeps its name, type and shape
       (``onnx_ir``'s own pass drops the latter two), nodes that hold graphs, operators that
       draw random numbers, and operators of domains that are not known to be pure.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Rewrite every graph and function."""
        for graph in all_graphs(model):
            first: dict[Hashable, ir.Node] = {}
            for node in graph:
                key = _key(node)
                if key is None:
                    continue
                keeper = first.setdefault(key, node)
                if keeper is node:
                    continue
                if any(output.is_graph_output() for output in node.outputs):
                    self.skipped.append(Skip(str(node.name), "gives a graph output"))
                    continue
                ir.convenience.replace_all_uses_with(node.outputs, keeper.outputs)
                graph.remove(node, safe=True)
                self.matches.append(Match(str(node.name), f"computed by {keeper.name!r}"))


def _key(node: ir.Node) -> Hashable | None:
    """Return what equal nodes have in common, or ``None`` for a node to leave alone."""
    if node.domain not in _DOMAINS or node.op_type in _RANDOM:
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        value = _attribute_key(attribute)
        if value is None:
            return None
        attributes.append((name, attribute.type, value))
    # A node that omits an optional output cannot stand for one that has it.
    outputs = tuple(bool(output.name) for output in node.outputs)
    inputs = tuple(None if value is None else id(value) for value in node.inputs)
    return node.op_identifier(), inputs, outputs, tuple(attributes)


def _attribute_key(attribute: ir.Attr) -> Hashable | None:
    kind, value = attribute.type, attribute.value
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    if kind == ir.AttributeType.FLOAT:
        return struct.pack("<d", value)
    if kind == ir.AttributeType.FLOATS:
        return struct.pack(f"<{len(value)}d", *value)
    if kind == ir.AttributeType.TENSOR:
        return tensor_digest(value)
    if kind in (ir.AttributeType.INT, ir.AttributeType.STRING):
        return (value,)
    if kind in (ir.AttributeType.INTS, ir.AttributeType.STRINGS):
        return tuple(value)
    return None
