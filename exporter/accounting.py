"""Counting bytes: what a graph stores, what of it is distinct, what a file takes.

Needs ``onnx_ir`` alone. Bit-equality decides that two tensors are one: dtype, shape
and bytes, so that 0.0 and -0.0 stay two.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from glob import escape
from pathlib import Path

import numpy as np
import onnx_ir as ir

__all__ = [
    "DuplicateGroup",
    "GraphBytes",
    "StoredTensor",
    "count_graph",
    "count_nodes",
    "file_bytes",
    "iter_graphs",
    "iter_stored",
    "iter_stored_tensors",
    "stored_bytes",
    "tensor_digest",
]

_NUMBERS = {
    ir.AttributeType.FLOAT: np.float32,
    ir.AttributeType.FLOATS: np.float32,
    ir.AttributeType.INT: np.int64,
    ir.AttributeType.INTS: np.int64,
}
"""What numbers in the attribute of a ``Constant`` stand for."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file and where it is.

    Args:
        name: the initializer's, or ``node/attribute``.
        tensor: its content.
        graph: what holds it.
        value: the initializer, or what the ``Constant`` node gives; ``None`` for a tensor
            attribute of another operator.
    """

    name: str
    tensor: ir.TensorProtocol
    graph: ir.Graph
    value: ir.Value | None


@dataclass(frozen=True)
class DuplicateGroup:
    """Names of tensors that are bit-equal, and the bytes all but one of them waste."""

    names: tuple[str, ...]
    wasted_bytes: int


@dataclass(frozen=True)
class GraphBytes:
    """What a graph holds.

    Args:
        stored_bytes: bytes of all tensors, subgraphs and functions included.
        unique_bytes: bytes of the distinct ones among them.
        nodes: number of nodes, those of subgraphs and functions counted once.
        duplicates: groups of bit-equal tensors, largest waste first.
    """

    stored_bytes: int
    unique_bytes: int
    nodes: int
    duplicates: tuple[DuplicateGroup, ...]


def count_graph(model: ir.Model) -> GraphBytes:
    """Count the tensors and nodes of ``model``."""
    names: dict[str, list[str]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for name, tensor in iter_stored_tensors(model):
        digest = tensor_digest(tensor)
        names[digest].append(name)
        sizes[digest] = tensor.nbytes
    duplicates = [
        DuplicateGroup(tuple(group), sizes[digest] * (len(group) - 1))
        for digest, group in names.items()
        if len(group) > 1
    ]
    return GraphBytes(
        stored_bytes=sum(sizes[digest] * len(group) for digest, group in names.items()),
        unique_bytes=sum(sizes.values()),
        nodes=count_nodes(model),
        duplicates=tuple(sorted(duplicates, key=lambda d: (-d.wasted_bytes, d.names))),
    )


def count_nodes(model: ir.Model) -> int:
    """Number of nodes, those of subgraphs and functions counted once."""
    return sum(1 for _ in _all_nodes(model))


def iter_stored_tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Walk every tensor the file will hold: initializers of all graphs, tensor attributes.

    Names are the initializer's, or ``node/attribute``.
    """
    for stored in iter_stored(model):
        yield stored.name, stored.tensor


def iter_stored(model: ir.Model) -> Iterator[StoredTensor]:
    """Walk every tensor the file will hold, and where it is: initializers first.

    Numbers and lists of numbers in ``Constant`` nodes count as the tensors they stand for.
    """
    for holder in iter_graphs(model):
        for name, value in holder.initializers.items():
            if value.const_value is not None:
                yield StoredTensor(name, value.const_value, holder, value)
    for node in _all_nodes(model):
        graph = node.graph
        assert graph is not None, "a walked node is in a graph"
        constant = node.op_type == "Constant" and node.domain == ""
        for key, attribute in node.attributes.items():
            name = f"{node.name or node.op_type}/{key}"
            if attribute.is_ref():  # the function's caller holds the tensor
                continue
            if attribute.type == ir.AttributeType.TENSOR:
                output = node.outputs[0] if constant else None
                yield StoredTensor(name, attribute.as_tensor(), graph, output)
            elif attribute.type == ir.AttributeType.TENSORS:
                for index, tensor in enumerate(attribute.as_tensors()):
                    yield StoredTensor(f"{name}[{index}]", tensor, graph, None)
            elif constant and attribute.type in _NUMBERS:
                array = np.array(attribute.value, _NUMBERS[attribute.type])
                yield StoredTensor(name, ir.Tensor(array), graph, node.outputs[0])


def iter_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Walk the main graph and those of functions, each followed by the graphs inside its nodes."""
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        yield root
        yield from root.subgraphs()


def stored_bytes(model: ir.Model) -> int:
    """Bytes of all tensors of ``model``; reads no values, so lazy tensors stay lazy."""
    return sum(tensor.nbytes for _, tensor in iter_stored_tensors(model))


def tensor_digest(tensor: ir.TensorProtocol) -> str:
    """Hash dtype, shape and bytes of ``tensor``; equal digests mean bit-equal tensors."""
    digest = hashlib.sha256(f"{tensor.dtype.name}{tuple(tensor.shape)}".encode())
    if tensor.dtype == ir.DataType.STRING:
        for text in tensor.string_data():  # type: ignore[attr-defined]
            digest.update(len(text).to_bytes(8, "little") + text)
    else:
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def file_bytes(path: Path) -> int:
    """Size of an ONNX file on disk, its external data files included."""
    data = path.parent.glob(f"{escape(path.name)}_data*")
    return path.stat().st_size + sum(file.stat().st_size for file in data)


def _all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        yield from root.all_nodes()
