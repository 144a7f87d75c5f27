"""Store query, key and value once where they are also stored packed into one tensor."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names, lineage, owner, parent_graphs
from exporter.passes.tensors import same_content

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
        names = Names(model)
        by_shape: dict[tuple[ir.DataType, tuple[int, ...]], list[ir.Value]] = defaultdict(list)
        for graph in parents:
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None and not value.is_graph_input():
                    by_shape[tensor.dtype, tuple(tensor.shape.numpy())].append(value)
        for (dtype, shape), packed_values in list(by_shape.items()):
            if len(shape) not in (1, 2) or dtype.is_string():
                continue
            for axis, size in enumerate(shape):
                for count in _PARTS:
                    part_shape = (*shape[:axis], size // count, *shape[axis + 1 :])
                    parts = by_shape.get((dtype, part_shape)) if size % count == 0 else None
                    for packed in list(packed_values) if parts else ():
                        if self._merge(packed, parts or [], axis, count, parents, names):
                            packed_values.remove(packed)

    def _merge(
        self,
        packed: ir.Value,
        candidates: list[ir.Value],
        axis: int,
        count: int,
        parents: dict[ir.Graph, ir.Graph | None],
        names: Names,
    ) -> bool:
        tensor, name = packed.const_value, packed.name
        assert tensor is not None and name is not None
        visible = lineage(owner(packed), parents)
        parts = []
        for slice_ in np.split(tensor.numpy(), count, axis):
            part = _find(ir.Tensor(np.ascontiguousarray(slice_), dtype=tensor.dtype), candidates)
            if part is None:
                return False
            parts.append(part)
        if reason := _reason_to_skip(packed, tensor, parts, visible):
            self.skipped.append(Skip(name, reason))
            return False
        graph = owner(packed)
        output = ir.Value(name=names.fresh(f"{name}_packed"), type=packed.type, shape=packed.shape)
        node = ir.Node("", "Concat", parts, [ir.AttrInt64("axis", axis)], outputs=[output])
        graph.insert_before(next(iter(graph)), node)
        packed.replace_all_uses_with(output)
        del graph.initializers[name]
        detail = f"computed from {', '.join(str(part.name) for part in parts)}"
        self.matches.append(Match(name, detail, tensor.nbytes))
        return True


def _find(tensor: ir.TensorProtocol, candidates: list[ir.Value]) -> ir.Value | None:
    digest = tensor_digest(tensor)
    for value in candidates:
        stored = value.const_value
        if stored is not None and tensor_digest(stored) == digest and same_content(stored, tensor):
            return value
    return None


def _reason_to_skip(
    packed: ir.Value,
    tensor: ir.TensorProtocol,
    parts: list[ir.Value],
    visible: list[ir.Graph],
) -> str | None:
    if packed.is_graph_output():
        return "is a graph output"
    if not packed.uses():
        return "has no user"
    if tensor.nbytes <= _NODE_BYTES:
        return f"at most {_NODE_BYTES} bytes"
    if any(owner(part) not in visible for part in parts):
        return "is made of parts that its graph cannot see"
    if any(not part.uses() and not part.is_graph_output() for part in parts):
        return "is made of parts of which one has no user"
    return None
