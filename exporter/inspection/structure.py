"""What a graph is made of: operators, loops, functions, and text that is no weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from exporter.accounting import iter_graphs

__all__ = [
    "OperatorCount",
    "RolledLoop",
    "annotation_bytes",
    "count_functions",
    "count_operators",
    "find_loops",
]


@dataclass(frozen=True)
class OperatorCount:
    """How often an operator stands in a file; a body counts once however often it runs.

    Args:
        operator: such as ``MatMul``, or ``com.microsoft.Attention``.
        top_level: in the main graph itself.
        in_bodies: in the graphs inside its nodes.
        in_functions: in functions.
    """

    operator: str
    top_level: int
    in_bodies: int
    in_functions: int

    @property
    def total(self) -> int:
        """The number of nodes."""
        return self.top_level + self.in_bodies + self.in_functions

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "operator": self.operator,
            "top_level": self.top_level,
            "in_bodies": self.in_bodies,
            "in_functions": self.in_functions,
        }


@dataclass(frozen=True)
class RolledLoop:
    """A ``Loop``: layers written once.

    Args:
        name: the node's.
        graph: where it stands.
        iterations: how often it runs; ``None`` if that is computed.
        depth_input: the graph input that sets it, with ``iterations`` as the default.
        nodes: nodes of the body, with graphs inside it.
        carried: values each iteration takes from the one before.
        scanned: values collected from all iterations.
        stacked_bytes: bytes of the tensors that hold one slice per iteration.
        stacks: their names.
    """

    name: str
    graph: str
    iterations: int | None
    depth_input: str | None
    nodes: int
    carried: int
    scanned: int
    stacked_bytes: int
    stacks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "graph": self.graph,
            "iterations": self.iterations,
            "depth_input": self.depth_input,
            "nodes": self.nodes,
            "carried": self.carried,
            "scanned": self.scanned,
            "stacked_bytes": self.stacked_bytes,
            "stacks": list(self.stacks),
        }


def count_operators(model: ir.Model) -> tuple[OperatorCount, ...]:
    """Count the operators of ``model``, the commonest first."""
    top_level = Counter(_operator(node) for node in model.graph)
    everywhere = Counter(_operator(node) for node in model.graph.all_nodes())
    functions: Counter[str] = Counter()
    for function in model.functions.values():
        functions.update(_operator(node) for node in function.all_nodes())
    counts = [
        OperatorCount(name, top_level[name], everywhere[name] - top_level[name], functions[name])
        for name in {*everywhere, *functions}
    ]
    return tuple(sorted(counts, key=lambda count: (-count.total, count.operator)))


def count_functions(model: ir.Model) -> dict[str, int]:
    """Return the number of nodes of each function."""
    return {
        f"{function.domain}.{function.name}": sum(1 for _ in function.all_nodes())
        for function in model.functions.values()
    }


def find_loops(model: ir.Model, labels: Mapping[ir.Graph, str]) -> tuple[RolledLoop, ...]:
    """Describe every ``Loop`` of ``model``."""
    return tuple(
        _read_loop(node, labels[graph])
        for graph in iter_graphs(model)
        for node in graph
        if node.op_type == "Loop" and node.domain == "" and "body" in node.attributes
    )


def annotation_bytes(model: ir.Model) -> int:
    """Bytes of doc strings and metadata, such as the stack traces torch's exporter leaves."""
    texts = _annotations(model)
    # protobuf hands out bytes where a text is no valid UTF-8.
    return sum(len(text if isinstance(text, bytes) else text.encode()) for text in texts)


def _operator(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _read_loop(node: ir.Node, graph: str) -> RolledLoop:
    body = node.attributes["body"].as_graph()
    trip_count = _trip_count(node)
    tensor = None if trip_count is None else ir.convenience.get_const_tensor(trip_count)
    is_input = trip_count is not None and trip_count.is_graph_input()
    stacks = {str(stack.name): stack for stack in _stacks(body)}
    carried = max(len(body.inputs) - 2, 0)
    return RolledLoop(
        name=str(node.name or node.outputs[0].name),
        graph=graph,
        iterations=None if tensor is None else int(tensor.numpy().reshape(-1)[0]),
        depth_input=str(trip_count.name) if is_input and trip_count is not None else None,
        nodes=sum(1 for _ in body.all_nodes()),
        carried=carried,
        scanned=max(len(body.outputs) - 1 - carried, 0),
        stacked_bytes=sum(s.const_value.nbytes for s in stacks.values() if s.const_value),
        stacks=tuple(sorted(stacks)),
    )


def _trip_count(node: ir.Node) -> ir.Value | None:
    """Return what says how often a ``Loop`` runs, without a lower limit that is put on it."""
    value = node.inputs[0] if node.inputs else None
    producer = None if value is None else value.producer()
    if producer is not None and producer.op_type == "Max" and not producer.domain:
        return next((v for v in producer.inputs if v is not None and v.is_graph_input()), value)
    return value


def _stacks(body: ir.Graph) -> Iterator[ir.Value]:
    """Yield the outer tensors that ``Gather`` nodes take one slice of per iteration.

    The slice's number is the iteration's, or is looked up by it where slices repeat.
    """
    pending = [body.inputs[0]] if body.inputs else []
    while pending:
        number = pending.pop()
        for node, index in number.uses():
            if node.op_type != "Gather" or node.domain or index != 1:
                continue
            data = node.inputs[0]
            if data is None or not data.is_initializer() or data.const_value is None:
                continue
            yield data
            if len(data.const_value.shape) == 1 and data.const_value.dtype.is_integer():
                pending.append(node.outputs[0])


def _annotations(model: ir.Model) -> Iterator[str | bytes]:
    yield from _texts(model)
    for graph in iter_graphs(model):
        yield from _texts(graph)
        values = [*graph.inputs]
        values += [v for v in graph.initializers.values() if not v.is_graph_input()]
        for node in graph:
            yield from _texts(node)
            values += node.outputs
        for value in values:
            yield from _texts(value)


def _texts(holder: ir.Model | ir.Graph | ir.Node | ir.Value) -> Iterator[str | bytes]:
    if holder.doc_string:
        yield holder.doc_string
    for key, text in holder.metadata_props.items():
        yield key
        yield text
