"""Constants of a graph: reading, adding and dropping them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

__all__ = ["add_constant", "constant_tensor", "drop_unused_constants", "is_constant_node"]


def is_constant_node(node: ir.Node | None) -> bool:
    """Whether ``node`` is an ONNX ``Constant``."""
    return node is not None and node.op_type == "Constant" and node.domain == ""


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return what ``value`` always holds, or None.

    Constant is the output of a ``Constant`` node, and an initializer unless it is an input
    too, which a caller may override.
    """
    if value.is_graph_input():
        return None
    if value.is_initializer() or is_constant_node(value.producer()):
        return ir.convenience.get_const_tensor(value)
    return None


def add_constant(graph: ir.Graph, name: str, content: np.ndarray | ir.TensorProtocol) -> ir.Value:
    """Register ``content`` as an initializer called ``name``, which must be free."""
    tensor = ir.tensor(content, name=name) if isinstance(content, np.ndarray) else content
    value = ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.numpy().shape),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value


def drop_unused_constants(graph: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Remove those of ``values`` that are constants of ``graph`` and that nothing uses."""
    for value in dict.fromkeys(values):
        if value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        producer = value.producer()
        if value.is_initializer() and value.graph is graph:
            del graph.initializers[str(value.name)]
        elif producer is not None and is_constant_node(producer) and producer.graph is graph:
            graph.remove(producer, safe=True)
