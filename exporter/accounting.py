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

import onnx_ir as ir

__all__ = [
    "DuplicateGroup",
    "GraphBytes",
    "count_graph",
    "file_bytes",
    "iter_stored_tensors",
    "stored_bytes",
    "tensor_digest",
]


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
        nodes=sum(1 for _ in _all_nodes(model)),
        duplicates=tuple(sorted(duplicates, key=lambda d: (-d.wasted_bytes, d.names))),
    )


def iter_stored_tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Walk every tensor the file will hold: initializers of all graphs, tensor attributes.

    Names are the initializer's, or ``node/attribute``.
    """
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                yield name, value.const_value
    for node in _all_nodes(model):
        for key, attribute in node.attributes.items():
            if attribute.is_ref():  # stands for a value that the function's caller holds
                continue
            if attribute.type == ir.AttributeType.TENSOR:
                yield f"{node.name or node.op_type}/{key}", attribute.as_tensor()
            elif attribute.type == ir.AttributeType.TENSORS:
                for index, tensor in enumerate(attribute.as_tensors()):
                    yield f"{node.name or node.op_type}/{key}[{index}]", tensor


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
    roots: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for root in roots:
        yield from ir.traversal.RecursiveGraphIterator(root)
