"""Store query, key and value once where they are also stored packed into one tensor."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator

import numpy as np
import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.passes.blocks.node_names import NodeNames
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names, lineage, owner, parent_graphs
from exporter.passes.tensors import same_content, type_and_shape

__all__ = ["MergePackedCopiesPass"]

_PARTS = (2, 3)
_NODE_BYTES = 128
"""What a ``Concat`` node and its names may take in the file."""


class MergePackedCopiesPass(ReportingPass):
    """Compute a packed initializer from its parts, if all of them are stored and used anyway.

    Optimizers that fuse attention leave this behind where they fuse some layers only.
    ::

        y = MatMul(x, QKV)                        QKV = Concat <axis = 1> (Q, K, V)
        q = MatMul(x, Q); k = …; v = …      ->    y = MatMul(x, QKV)
                                                  q = MatMul(x, Q); k = …; v = …

    1. Vectors and matrices that are two or three equally large tensors side by side, along
       any axis, bit for bit. The parts may be the same tensor.
    2. Left alone: a packed tensor one of whose parts has no user (the part goes, not the
       packed tensor), graph inputs and outputs, parts that the owner of the packed tensor
       cannot see, and tensors so small that the node would take more than it saves.

    At run time it costs nothing: onnxruntime computes the ``Concat`` when it loads the model.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Merge in the main graph, its inner graphs, and those inside functions."""
        parents = parent_graphs(model)
        names, node_names = Names(model), NodeNames(model)
        by_shape: dict[Hashable, list[ir.Value]] = defaultdict(list)
        for graph in parents:
            for value in graph.initializers.values():
                if value.const_value is not None and not value.is_graph_input():
                    by_shape[type_and_shape(value.const_value)].append(value)
        # Each candidate is read once, however many packed tensors it may be a part of.
        digest_of = functools.cache(_digest)
        for packed in [value for values in by_shape.values() for value in values]:
            visible = lineage(owner(packed), parents)
            for axis, slices in _splits(packed):
                shape = type_and_shape(slices[0])
                candidates = [v for v in by_shape.get(shape, ()) if owner(v) in visible]
                parts = [_find(part, candidates, digest_of) for part in slices if candidates]
                found = [part for part in parts if part is not None]
                if len(found) < len(slices):
                    continue
                if self._merge(packed, found, axis, names, node_names):
                    by_shape[type_and_shape(_tensor(packed))].remove(packed)
                    break

    def _merge(
        self,
        packed: ir.Value,
        parts: list[ir.Value],
        axis: int,
        names: Names,
        node_names: NodeNames,
    ) -> bool:
        name, tensor, graph = str(packed.name), _tensor(packed), owner(packed)
        if reason := _reason_to_skip(packed, tensor, parts):
            self.skipped.append(Skip(name, reason))
            return False
        output = ir.Value(name=names.fresh(f"{name}_packed"), type=packed.type, shape=packed.shape)
        attributes = [ir.AttrInt64("axis", axis)]
        node_name = node_names.fresh(f"Concat_{output.name}")
        node = ir.Node("", "Concat", parts, attributes, outputs=[output], name=node_name)
        graph.insert_before(next(iter(graph)), node)
        packed.replace_all_uses_with(output)
        del graph.initializers[name]
        detail = f"computed from {', '.join(str(part.name) for part in parts)}"
        self.matches.append(Match(name, detail, tensor.nbytes))
        return True


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    assert value.const_value is not None
    return value.const_value


def _digest(value: ir.Value) -> str:
    return tensor_digest(_tensor(value))


def _splits(packed: ir.Value) -> Iterator[tuple[int, list[ir.TensorProtocol]]]:
    """Yield each axis along which ``packed`` splits into equal parts, and the parts, unread."""
    tensor = _tensor(packed)
    shape = tuple(tensor.shape.numpy())
    if len(shape) not in (1, 2) or tensor.dtype.is_string():
        return
    for axis, size in enumerate(shape):
        for count in _PARTS:
            if size % count == 0 and size:
                part = ir.Shape((*shape[:axis], size // count, *shape[axis + 1 :]))
                yield axis, [_part(tensor, axis, count, i, part) for i in range(count)]


def _part(
    tensor: ir.TensorProtocol, axis: int, count: int, index: int, shape: ir.Shape
) -> ir.TensorProtocol:
    def evaluate() -> ir.TensorProtocol:
        part = np.split(tensor.numpy(), count, axis)[index]
        return ir.Tensor(np.ascontiguousarray(part), dtype=tensor.dtype)

    return ir.LazyTensor(evaluate, dtype=tensor.dtype, shape=shape.copy())


def _find(
    part: ir.TensorProtocol, candidates: list[ir.Value], digest_of: Callable[[ir.Value], str]
) -> ir.Value | None:
    digest = tensor_digest(part)
    equal = (v for v in candidates if digest_of(v) == digest and same_content(_tensor(v), part))
    return next(equal, None)


def _reason_to_skip(
    packed: ir.Value, tensor: ir.TensorProtocol, parts: list[ir.Value]
) -> str | None:
    if packed.is_graph_output():
        return "is a graph output"
    if not packed.uses():
        return "has no user"
    if tensor.nbytes <= _NODE_BYTES:
        return f"at most {_NODE_BYTES} bytes"
    if any(not part.uses() and not part.is_graph_output() for part in parts):
        return "is made of parts of which one has no user"
    return None
