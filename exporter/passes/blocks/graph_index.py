"""What the block detector asks about a graph again and again, computed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.passes.scopes import inner_graphs

__all__ = ["GraphIndex", "constant_tensor", "same_layout"]


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return what ``value`` always holds: an initializer that no caller can override, or
    the output of a ``Constant`` node."""
    if value.is_graph_input():
        return None
    if value.is_initializer() or _is_constant_node(value.producer()):
        return ir.convenience.get_const_tensor(value)
    return None


class GraphIndex:
    """Nodes of one graph in an order of its own, who depends on whom, and equality keys.

    The order is topological and follows from the graph outputs alone: a depth-first walk
    from each output through each input. It is the same for every file order of the same
    nodes; only nodes that no output needs come last, in file order. A node with inner
    graphs also depends on the outer values these capture. ``Constant`` nodes are no nodes
    here but constants.

    Sets of nodes are Python integers: bit ``i`` stands for ``nodes[i]``.

    Attributes:
        nodes: nodes in that order.
        position: index of each node in ``nodes``.
        ancestors: per node, the set of nodes it depends on, itself not included.
        users: per value, indices of the nodes that need it, themselves or captured.
        signature: per node, a number; equal numbers mean equal operator, attributes and
            counts of inputs and outputs. A node that can never be merged with another
            (inner graphs, reference attributes, random operators) has one for itself.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self._dependencies = _dependencies(graph)
        self.nodes = [node for node in self._walk() if not _is_constant_node(node)]
        self.position = {node: index for index, node in enumerate(self.nodes)}
        self.ancestors: list[int] = []
        self.users: dict[ir.Value, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            above = 0
            for value in self._dependencies[node]:
                self.users[value].append(index)
                producer = self.producer(value)
                if producer is not None:
                    above |= self.ancestors[producer] | 1 << producer
            self.ancestors.append(above)
        numbers: dict[Hashable, int] = {}
        self.signature = [numbers.setdefault(_signature(n), len(numbers)) for n in self.nodes]
        self.by_signature: dict[int, list[int]] = defaultdict(list)
        for index, number in enumerate(self.signature):
            self.by_signature[number].append(index)
        self._digests: dict[ir.Value, str] = {}

    def producer(self, value: ir.Value) -> int | None:
        """Index of the node that computes ``value``; None for inputs and constants."""
        node = value.producer()
        return None if node is None else self.position.get(node)

    def same_constant(self, one: ir.Value, other: ir.Value) -> bool:
        """Whether both hold the same bits, type and shape, now and always."""
        if one is other:
            return True
        first, second = constant_tensor(one), constant_tensor(other)
        if first is None or second is None or not same_layout(first, second):
            return False
        return self._digest(one, first) == self._digest(other, second)

    def stackable(self, one: ir.Value, other: ir.Value) -> bool:
        """Whether both are constants of one type and shape, so that a stack can hold both."""
        first, second = constant_tensor(one), constant_tensor(other)
        return first is not None and second is not None and same_layout(first, second)

    def _digest(self, value: ir.Value, tensor: ir.TensorProtocol) -> str:
        if value not in self._digests:
            self._digests[value] = tensor_digest(tensor)
        return self._digests[value]

    def _walk(self) -> Iterator[ir.Node]:
        done: set[ir.Node] = set()
        roots = [v.producer() for v in self.graph.outputs]
        for root in [*roots, *self.graph]:
            stack = [root] if root in self._dependencies else []
            while stack:
                node = stack[-1]
                assert node is not None
                if node in done:
                    stack.pop()
                    continue
                above = [v.producer() for v in self._dependencies[node]]
                pending = [n for n in above if n in self._dependencies and n not in done]
                if pending:
                    stack.extend(reversed(pending))
                    continue
                done.add(node)
                stack.pop()
                yield node


def same_layout(one: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    """Whether type and shape agree."""
    return one.dtype == other.dtype and tuple(one.shape) == tuple(other.shape)


def _dependencies(graph: ir.Graph) -> dict[ir.Node, list[ir.Value]]:
    """All values each node of ``graph`` needs, each once, captured ones included."""
    own = {value for node in graph for value in node.outputs}
    own.update(graph.inputs, graph.initializers.values())
    dependencies = {}
    for node in graph:
        values = dict.fromkeys(value for value in node.inputs if value is not None)
        for inner in inner_graphs([node]):
            for inside in ir.traversal.RecursiveGraphIterator(inner):
                values.update((v, None) for v in inside.inputs if v in own and v is not None)
        dependencies[node] = list(values)
    return dependencies


def _is_constant_node(node: ir.Node | None) -> bool:
    return node is not None and node.op_type == "Constant" and node.domain == ""


_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Two such nodes draw separately; one node run twice may draw otherwise."""


def _signature(node: ir.Node) -> Hashable:
    training_dropout = node.op_type == "Dropout" and len(node.inputs) > 2
    if node.domain == "" and (node.op_type in _RANDOM or training_dropout):
        return id(node)
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        key = _attribute_key(attribute)
        if key is None:
            return id(node)
        attributes.append((name, attribute.type, key))
    return (node.op_identifier(), len(node.inputs), len(node.outputs), tuple(attributes))


def _attribute_key(attribute: ir.Attr) -> Hashable | None:
    kind = ir.AttributeType
    if attribute.is_ref():
        return None
    if attribute.type == kind.TENSOR:
        return tensor_digest(attribute.as_tensor())
    if attribute.type in (kind.INT, kind.STRING, kind.INTS, kind.STRINGS):
        value = attribute.value
        return tuple(value) if attribute.type in (kind.INTS, kind.STRINGS) else value
    if attribute.type == kind.FLOAT:
        return repr(attribute.value)  # keeps 0.0 and -0.0 apart
    if attribute.type == kind.FLOATS:
        return tuple(map(repr, attribute.value))
    return None
