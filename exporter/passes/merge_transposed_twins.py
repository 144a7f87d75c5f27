"""Store a matrix and its transpose once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

import numpy as np
import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.passes.blocks.node_names import NodeNames
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names, lineage, move_to_front, owner, parent_graphs
from exporter.passes.tensors import same_content

__all__ = ["MergeTransposedTwinsPass"]

_NODE_BYTES = 128
"""What a ``Transpose`` node and its names may take in the file."""

_SWAP = [1, 0]


class MergeTransposedTwinsPass(ReportingPass):
    """Where two initializers are each other's transpose, bit for bit, keep one.

    ::

        e = Gather(A, ids)                T = Transpose(A)
        y = MatMul(x, B)  (B = Aᵀ)   ->   e = Gather(A, ids); y = MatMul(x, T)

    1. Matrices only, of one type; both dimensions at least 2; not those that are their own
       transpose, whose twins are their equals.
    2. The one that goes is read by ``MatMul`` and ``Gemm`` alone if either is, since others
       (a lookup) need its rows as they are; else the later one.
    3. All users of the one that goes read one ``Transpose`` of the other, at the front of the
       graph that owns it; a ``Transpose`` of the one that goes is the other one itself.
    4. Left alone: graph inputs and outputs, a twin that the other's users cannot see, and
       twins so small that the node would take more bytes than it saves.

    At run time the ``Transpose`` costs no latency, for onnxruntime folds it when it loads the
    model; the matrix is in memory in both forms, as before, and a copy stays with the
    allocator: 135 MiB instead of 103 MiB for the table of 33 MB that
    ``FoldWeightTransformsPass`` describes. ``UseGemmForTiedTablesPass`` avoids both.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Merge in the main graph, its inner graphs, and those inside functions."""
        parents = parent_graphs(model)
        names, node_names = Names(model), NodeNames(model)
        for bucket in self._candidates(parents):
            self._merge_bucket(bucket, parents, names, node_names)

    def _candidates(self, parents: dict[ir.Graph, ir.Graph | None]) -> Iterator[list[ir.Value]]:
        """Yield lists of matrices of one type and, up to order, equal dimensions."""
        buckets: dict[Hashable, list[ir.Value]] = defaultdict(list)
        for graph in parents:
            outermost = lineage(graph, parents)[-1]
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is None or value.is_graph_input() or tensor.dtype.is_string():
                    continue
                shape = tuple(tensor.shape.numpy())
                if len(shape) == 2 and min(shape) > 1:
                    key = id(outermost), tensor.dtype, tuple(sorted(shape))
                    buckets[key].append(value)
        yield from (bucket for bucket in buckets.values() if len(bucket) > 1)

    def _merge_bucket(
        self,
        bucket: list[ir.Value],
        parents: dict[ir.Graph, ir.Graph | None],
        names: Names,
        node_names: NodeNames,
    ) -> None:
        by_digest: dict[str, list[ir.Value]] = defaultdict(list)
        for value in bucket:
            assert value.const_value is not None
            transpose = _transposed(value.const_value)
            own, swapped = tensor_digest(value.const_value), tensor_digest(transpose)
            if own == swapped:  # symmetric: its twins are its equals
                continue
            for twin in list(by_digest[swapped]):
                assert twin.const_value is not None
                if not same_content(twin.const_value, transpose):
                    continue
                pair = self._choose(twin, value, parents)
                if pair is None:
                    continue
                kept, gone = pair
                self._replace(gone, kept, names, node_names)
                if gone is value:
                    break
                by_digest[swapped].remove(twin)
            else:
                by_digest[own].append(value)

    def _choose(
        self, first: ir.Value, second: ir.Value, parents: dict[ir.Graph, ir.Graph | None]
    ) -> tuple[ir.Value, ir.Value] | None:
        """Return which of two twins to keep and which to drop, if one can go."""
        assert second.const_value is not None
        if second.const_value.nbytes <= _NODE_BYTES:
            self.skipped.append(Skip(str(second.name), f"at most {_NODE_BYTES} bytes"))
            return None
        orders = [(first, second), (second, first)]
        if _only_multiplies(first) and not _only_multiplies(second):
            orders.reverse()
        for kept, gone in orders:
            if not gone.is_graph_output() and owner(kept) in lineage(owner(gone), parents):
                return kept, gone
        reason = f"{first.name!r} is its transpose, but neither can go: an output, or out of sight"
        self.skipped.append(Skip(str(second.name), reason))
        return None

    def _replace(self, gone: ir.Value, kept: ir.Value, names: Names, node_names: NodeNames) -> None:
        assert gone.const_value is not None and gone.name is not None
        for node in gone.consumers():
            if _swaps(node) and not node.outputs[0].is_graph_output():
                node.outputs[0].replace_all_uses_with(kept)
                assert node.graph is not None
                node.graph.remove(node, safe=True)
        if gone.uses():
            gone.replace_all_uses_with(_transpose_of(kept, names, node_names))
        del owner(gone).initializers[gone.name]
        detail = f"replaced by the transpose of {kept.name!r}"
        self.matches.append(Match(gone.name, detail, gone.const_value.nbytes))


def _transposed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.Tensor(np.ascontiguousarray(tensor.numpy().T), dtype=tensor.dtype)


def _only_multiplies(value: ir.Value) -> bool:
    return all(node.op_type in ("MatMul", "Gemm") and not node.domain for node in value.consumers())


def _swaps(node: ir.Node) -> bool:
    if node.op_type != "Transpose" or node.domain:
        return False
    return list(node.attributes.get_ints("perm", _SWAP)) == _SWAP


def _transpose_of(value: ir.Value, names: Names, node_names: NodeNames) -> ir.Value:
    """Return the output of a ``Transpose`` of ``value`` that all its graph's nodes can read."""
    graph = owner(value)
    tensor = value.const_value
    assert tensor is not None
    for node, _ in value.uses():
        if node.graph is graph and _swaps(node) and not node.outputs[0].is_graph_output():
            move_to_front(node, graph, names, node_names)
            return node.outputs[0]
    output = ir.Value(
        name=names.fresh(f"{value.name}_transposed"),
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tuple(reversed(tensor.shape.numpy()))),
    )
    perm = ir.AttrInt64s("perm", _SWAP)
    node_name = node_names.fresh(f"Transpose_{output.name}")
    node = ir.Node("", "Transpose", [value], [perm], outputs=[output], name=node_name)
    graph.insert_before(next(iter(graph)), node)
    return output
