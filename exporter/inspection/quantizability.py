"""Which weight operations a quantizer reaches that looks for initializers of the main graph.

onnxruntime's ``quantize_dynamic`` and its kin look at the weight input of an operation: if
that is an initializer of the main graph, it is quantized. A weight behind an ``Identity``
or a ``Transpose`` is not seen, and nobody says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from exporter.inspection.reach import QuantizerReach, Status, WeightOperation
from exporter.inspection.tensors import VIEWS

__all__ = ["find_weight_operations"]

_WEIGHT_INPUTS: dict[tuple[str, str], tuple[int, ...]] = {
    ("", "MatMul"): (1, 0),
    ("", "Gemm"): (1, 0),
    ("", "Gather"): (0,),
    ("", "MatMulInteger"): (1, 0),
    ("", "QLinearMatMul"): (3,),
    ("com.microsoft", "Attention"): (1,),
    ("com.microsoft", "DynamicQuantizeMatMul"): (1,),
    ("com.microsoft", "EmbedLayerNormalization"): (2, 3, 4),
    ("com.microsoft", "FusedMatMul"): (1, 0),
    ("com.microsoft", "GatherBlockQuantized"): (0,),
    ("com.microsoft", "MatMulIntegerToFloat"): (1,),
    ("com.microsoft", "MatMulNBits"): (1,),
    ("com.microsoft", "QAttention"): (1,),
}
"""Inputs where weights are; of an embedding operator each is a weight operation."""

_HALF_FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

_PRODUCTS = frozenset({"MatMul", "Gemm", "MatMulInteger", "FusedMatMul"})


@dataclass(frozen=True)
class _Source:
    """What a value computed from stored tensors alone is made of."""

    values: tuple[ir.Value, ...]
    path: tuple[str, ...]


class _Walk:
    """One walk over the nodes in order, following what is computed from stored tensors."""

    def __init__(self, main: ir.Graph, labels: dict[ir.Graph, str]) -> None:
        self._main, self._labels = main, labels
        self._sources: dict[ir.Value, _Source] = {}
        self._iterations: set[ir.Value] = set()
        self.operations: list[tuple[WeightOperation, tuple[ir.Value, ...]]] = []

    def enter(self, graph: ir.Graph) -> None:
        for value in graph.initializers.values():
            self._sources[value] = _Source((value,), ())
        for node in graph:
            self._read(node)
            for attribute in node.attributes.values():
                if attribute.is_ref():
                    continue
                inner: Iterable[ir.Graph] = ()
                if attribute.type == ir.AttributeType.GRAPH:
                    inner = (attribute.as_graph(),)
                elif attribute.type == ir.AttributeType.GRAPHS:
                    inner = attribute.as_graphs()
                for body in inner:
                    if node.op_type == "Loop" and body.inputs:
                        self._iterations.add(body.inputs[0])
                    self.enter(body)

    def _read(self, node: ir.Node) -> None:
        """Note what the node's outputs are made of, and whether it reads a weight."""
        if node.op_type == "Constant" and not node.domain:
            self._sources[node.outputs[0]] = _Source((node.outputs[0],), ())
            return
        selects = _is_plain(node, "Gather") and self._is_single(node.inputs[1])
        if not selects:
            self._find_operations(node)
        inputs = [value for value in node.inputs if value is not None]
        known = [self._sources[value] for value in inputs if value in self._sources]
        if not known or any(a.type in _GRAPHS for a in node.attributes.values()):
            return
        if all(value in self._sources or value in self._iterations for value in inputs):
            values = dict.fromkeys(value for source in known for value in source.values)
            steps = dict.fromkeys(step for source in known for step in source.path)
            path = (*steps, *(() if node.op_type in steps else (node.op_type,)))
            for output in node.outputs:
                self._sources[output] = _Source(tuple(values), path)

    def _is_single(self, index: ir.Value | None) -> bool:
        """Whether an index picks one slice, as the layer's number does, and is no lookup."""
        if index is None:
            return False
        if index in self._iterations or (index.shape is not None and index.shape.rank() == 0):
            return True
        node = index.producer()
        return _is_plain(node, "Gather") and node is not None and self._is_single(node.inputs[1])

    def _find_operations(self, node: ir.Node) -> None:
        for index in _WEIGHT_INPUTS.get((node.domain, node.op_type), ()):
            value = node.inputs[index] if index < len(node.inputs) else None
            source = self._sources.get(value) if value is not None else None
            weights = _weights(source)
            if value is None or source is None or not weights:
                continue
            if _is_plain(node, "Gather") and _holds_scales(value, node.inputs[1]):
                continue
            others = [v for i, v in enumerate(node.inputs) if i != index and v is not None]
            if all(other in self._sources for other in others):
                return  # a constant, not an operation on a weight
            self._add(node, index, value, source, weights)

    def _add(
        self,
        node: ir.Node,
        index: int,
        value: ir.Value,
        source: _Source,
        weights: tuple[ir.Value, ...],
    ) -> None:
        reason = self._reason(node, index, value, source)
        status: Status = "missed" if reason else "reached"
        if all(_is_reduced(weight) for weight in weights):
            status, reason = "reduced", None
        assert node.graph is not None
        operation = WeightOperation(
            name=str(node.name or node.outputs[0].name),
            operator=f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
            graph=self._labels[node.graph],
            weights=tuple(str(weight.name) for weight in weights),
            weight_bytes=sum(_bytes(weight) for weight in weights),
            status=status,
            reason=reason,
            hidden=status == "missed" and self._is_hidden(source),
        )
        self.operations.append((operation, weights))

    @staticmethod
    def _is_hidden(source: _Source) -> bool:
        in_view = all(step in VIEWS for step in source.path)
        constant = any(not value.is_initializer() for value in source.values)
        return (bool(source.path) and in_view) or constant

    def _reason(self, node: ir.Node, index: int, value: ir.Value, source: _Source) -> str | None:
        """Say why a quantizer would not see this weight."""
        reasons = []
        if source.path:
            reasons.append(f"behind {', '.join(source.path)}")
        if any(not weight.is_initializer() for weight in source.values):
            reasons.append("in a Constant node")
        if any(weight.is_graph_input() for weight in source.values):
            reasons.append("a graph input, which callers may override")
        if node.op_type in _PRODUCTS and index == 0:
            reasons.append("the left factor of a product")
        if node.graph is not self._main:
            reasons.append("in the body of a loop, a branch or a function")
        return "; ".join(reasons) or None


def find_weight_operations(model: ir.Model, labels: dict[ir.Graph, str]) -> QuantizerReach:
    """Find every operation that reads a weight, and whether a quantizer would see the weight.

    A weight is a stored tensor of floating-point numbers with two dimensions or more, or one
    of integers of at most 8 bits; these and floats of 16 bits count as reduced. It is followed
    through everything that computes with stored tensors alone (aliases, a ``Concat`` of parts,
    the dequantization of integers, the slice of a stack that belongs to a loop's iteration).
    Scales and zero points that are looked up along with integers are no weights. In functions
    only what they store themselves is followed: their parameters have no values of their own.

    Args:
        model: the graph; no tensor content is read.
        labels: what to call its graphs; see :func:`exporter.inspection.tensors.graph_labels`.
    """
    walk = _Walk(model.graph, labels)
    walk.enter(model.graph)
    for function in model.functions.values():
        walk.enter(function.graph)
    states: dict[ir.Value, set[Status]] = {}
    for operation, weights in walk.operations:
        for weight in weights:
            states.setdefault(weight, set()).add(operation.status)
    return QuantizerReach(
        operations=tuple(operation for operation, _ in walk.operations),
        weight_bytes=sum(map(_bytes, states)),
        reached_bytes=sum(_bytes(v) for v, found in states.items() if found == {"reached"}),
        reduced_bytes=sum(_bytes(v) for v, found in states.items() if found == {"reduced"}),
    )


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _is_plain(node: ir.Node | None, operator: str) -> bool:
    return node is not None and node.domain == "" and node.op_type == operator


def _tensor(value: ir.Value) -> ir.TensorProtocol | None:
    return ir.convenience.get_const_tensor(value)


def _bytes(value: ir.Value) -> int:
    tensor = _tensor(value)
    return 0 if tensor is None else tensor.nbytes


def _weights(source: _Source | None) -> tuple[ir.Value, ...]:
    """Return the weights among what a value is made of: no scales, no shapes."""
    if source is None:
        return ()
    if small := tuple(value for value in source.values if _is_of_bytes(value)):
        return small
    return tuple(value for value in source.values if _is_float_matrix(value))


def _is_float_matrix(value: ir.Value) -> bool:
    tensor = _tensor(value)
    return tensor is not None and tensor.dtype.is_floating_point() and len(tensor.shape) > 1


def _is_of_bytes(value: ir.Value) -> bool:
    """Whether it is a matrix of numbers of at most 8 bits."""
    tensor = _tensor(value)
    if tensor is None or tensor.dtype in (ir.DataType.STRING, ir.DataType.BOOL):
        return False
    return tensor.dtype.itemsize <= 1 and len(tensor.shape) > 1


def _is_reduced(value: ir.Value) -> bool:
    """Whether it is a matrix of numbers of fewer bits than float32 has."""
    tensor = _tensor(value)
    return _is_of_bytes(value) or (tensor is not None and tensor.dtype in _HALF_FLOATS)


def _holds_scales(table: ir.Value, indices: ir.Value | None) -> bool:
    """Whether a table belongs to integers that are looked up by the same indices.

    It then has as many rows, and a number for each 8 bytes of integers at most.
    """
    scales = _tensor(table)
    if scales is None or indices is None:
        return False
    lookups = (node.inputs[0] for node in indices.consumers() if _is_plain(node, "Gather"))
    tables = (_tensor(value) for value in lookups if value is not None and _is_of_bytes(value))
    return any(
        8 * scales.size <= numbers.size and numbers.shape[0] == scales.shape[0]
        for numbers in tables
        if numbers is not None
    )
