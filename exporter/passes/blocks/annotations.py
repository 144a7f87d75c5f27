"""Types and shapes of a graph's values, inferred where a file does not give them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from exporter.passes.blocks.constants import constant_tensor

__all__ = ["Annotations"]

Dim = int | str | None

_SMALL_TENSOR_BYTES = 1_000


class Annotations:
    """What is known about the values of ``model``'s main graph; the model stays as it is."""

    def __init__(self, model: ir.Model) -> None:
        self._inferred: dict[str, ir.Value] = {}
        missing = any(
            value.dtype is None or value.shape is None
            for node in model.graph
            for value in node.outputs
        )
        if missing:
            self._inferred = _infer(model)

    def type(self, value: ir.Value) -> ir.TypeProtocol | None:
        """Type of ``value``, if known."""
        if value.type is not None:
            return value.type
        tensor = constant_tensor(value)
        if tensor is not None:
            return ir.TensorType(tensor.dtype)
        inferred = self._inferred.get(value.name or "")
        return None if inferred is None else inferred.type

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """Element type of a tensor, if known; None for sequences and optionals too."""
        known = self.type(value)
        return known.dtype if isinstance(known, ir.TensorType) else None

    def dims(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """Sizes, names of symbolic sizes, and None for unknown ones; None if all is unknown."""
        shape = value.shape
        tensor = constant_tensor(value)
        if shape is None and tensor is not None:
            return tuple(tensor.numpy().shape)
        if shape is None:
            inferred = self._inferred.get(value.name or "")
            shape = None if inferred is None else inferred.shape
        if shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else dim.value for dim in shape)

    def compatible(self, values: Sequence[ir.Value]) -> bool:
        """Whether nothing known of ``values`` contradicts one type, rank and fixed sizes."""
        types = {known for value in values if (known := self.type(value)) is not None}
        shapes = [dims for value in values if (dims := self.dims(value)) is not None]
        if len(types) > 1 or len({len(dims) for dims in shapes}) > 1:
            return False
        sizes = zip(*shapes, strict=True)
        return all(len({size for size in axis if isinstance(size, int)}) <= 1 for axis in sizes)

    def one_shape(self, values: Sequence[ir.Value]) -> bool:
        """Whether all sizes of all ``values`` are known, by number or name, and equal."""
        shapes = {self.dims(value) for value in values}
        return len(shapes) == 1 and None not in shapes and None not in (shapes.pop() or ())

    def common_dims(self, values: Sequence[ir.Value]) -> tuple[Dim, ...] | None:
        """Sizes on which all agree; None where they do not, or if a rank is unknown."""
        shapes = [self.dims(value) for value in values]
        known = [dims for dims in shapes if dims is not None]
        if len(known) < len(shapes):
            return None
        axes = (set(axis) for axis in zip(*known, strict=True))
        return tuple(axis.pop() if len(axis) == 1 else None for axis in axes)


def _infer(model: ir.Model) -> dict[str, ir.Value]:
    """Run onnx's shape inference; return the values of the main graph by name, none if it fails.

    (``onnx_ir``'s own pass takes a sequence of tensors for a tensor.)
    """
    clone = model.clone()
    for name, value in list(clone.graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None:
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        if tensor is None or tensor.nbytes > _SMALL_TENSOR_BYTES:
            # The values of shapes matter; those of weights would only be copied.
            del clone.graph.initializers[name]
            if not value.is_graph_input():
                clone.graph.inputs.append(value)
    try:
        inferred = onnx.shape_inference.infer_shapes(ir.to_proto(clone), data_prop=True)
    except onnx.shape_inference.InferenceError:
        return {}
    return dict(ir.convenience.create_value_mapping(ir.from_proto(inferred).graph))
