"""What the block detector asks about a graph again and again, computed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.passes.blocks.constants import constant_tensor, is_constant_node
from exporter.passes.scopes import inner_graphs

__all__ = ["GraphIndex"]


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
        constants: per constant that a node uses, its tensor.
        signature: per node, a number; equal numbers mean equal operator, attributes and
            counts of inputs and outputs. A node that can never be merged with another
            (inner graphs, reference attributes, random operators) has one for itself.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self._dependencies = _dependencies(graph)
        self.nodes = [node for node in self._walk() if not is_constant_node(node)]
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
        self.constants = {
            value: tensor for value in self.users if (tensor := constant_tensor(value)) is not None
        }
        self._layouts = {
            value: (tensor.dtype, tuple(tensor.shape)) for value, tensor in self.constants.items()
        }
        self._digests: dict[ir.Value, str] = {}
        self._descendants: dict[int, int] = {}

    def producer(self, value: ir.Value) -> int | None:
        """Index of the node that computes ``value``; None for inputs and constants."""
        node = value.producer()
        return None if node is None else self.position.get(node)

    def descendants(self, node: int) -> int:
        """Set of the nodes that depend on ``node``."""
        if node not in self._descendants:
            below = (1 << n for n, above in enumerate(self.ancestors) if above >> node & 1)
            self._descendants[node] = sum(below)
        return self._descendants[node]

    def same_constant(self, one: ir.Value, other: ir.Value) -> bool:
        """Whether both hold the same bits, type and shape, now and always."""
        return one is other or (
            self.stackable(one, other) and self.content(one) == self.content(other)
        )

    def stackable(self, one: ir.Value, other: ir.Value) -> bool:
        """Whether both are constants of one type and shape, so that a stack can hold both."""
        first = self._layouts.get(one)
        return first is not None and first == self._layouts.get(other)

    def content(self, value: ir.Value) -> str:
        """Digest of the type, shape and bits of a constant."""
        if value not in self._digests:
            self._digests[value] = tensor_digest(self.constants[value])
        return self._digests[value]

    def nbytes(self, value: ir.Value) -> int:
        """Bytes of a constant; 0 for any other value."""
        tensor = self.constants.get(value)
        return 0 if tensor is None else tensor.nbytes

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
