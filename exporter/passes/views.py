"""Operators that only present a constant in another way: what they do, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["View", "apply_view", "read_view"]

_RESHAPING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})

# Conversions that numpy and onnxruntime round alike.
_ROUNDED_ALIKE = frozenset(
    {
        (ir.DataType.DOUBLE, ir.DataType.FLOAT),
        (ir.DataType.FLOAT, ir.DataType.FLOAT16),
        (ir.DataType.FLOAT, ir.DataType.BFLOAT16),
    }
)


@dataclass(frozen=True)
class View:
    """What a node makes of a tensor; equal views of one tensor are equal tensors.

    ``Transpose<perm=[1, 0]>`` is ``View("transpose", (1, 0))``; each of ``Reshape``,
    ``Flatten``, ``Squeeze``, ``Unsqueeze`` is ``View("reshape", <resulting shape>)``; a
    ``Cast`` is ``View("cast", <data type>)``.
    """

    kind: str
    argument: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.argument}"

    def growth(self, tensor: ir.TensorProtocol) -> int:
        """How many bytes the result of ``tensor`` takes beyond those of ``tensor`` itself."""
        if self.kind != "cast":
            return 0
        return math.ceil(tensor.size * self.argument.itemsize) - tensor.nbytes

    def changes(self, tensor: ir.TensorProtocol) -> bool:
        """Whether the result differs from ``tensor`` itself."""
        if self.kind == "reshape":
            return bool(self.argument != tuple(tensor.shape.numpy()))
        if self.kind == "cast":
            return bool(self.argument != tensor.dtype)
        return bool(self.argument != tuple(range(len(self.argument))))


def read_view(node: ir.Node, tensor: ir.TensorProtocol) -> View | None:
    """Read what ``node`` makes of ``tensor``, its first input; ``None``: no view we know."""
    if node.domain:
        return None
    if node.op_type == "Transpose":
        perm = node.attributes.get_ints("perm", tuple(reversed(range(len(tensor.shape)))))
        return View("transpose", tuple(perm))
    if node.op_type == "Cast":
        return View("cast", ir.DataType(node.attributes.get_int("to", 0)))
    if node.op_type in _RESHAPING:
        shape = _resulting_shape(node, tuple(tensor.shape.numpy()))
        return None if shape is None else View("reshape", shape)
    return None


def apply_view(view: View, tensor: ir.TensorProtocol) -> ir.TensorProtocol | str:
    """Compute the view of ``tensor``, or say why that is not safe."""
    if tensor.dtype == ir.DataType.STRING:
        return "holds strings"
    array = tensor.numpy()
    if view.kind == "cast":
        return _cast(tensor.dtype, view.argument, array)
    changed = array.transpose(view.argument) if view.kind == "transpose" else array
    if view.kind == "reshape":
        changed = changed.reshape(view.argument)
    # A copy of its own: the source may be memory of a file that is replaced later.
    return ir.Tensor(np.array(changed, order="C"), dtype=tensor.dtype)


def _resulting_shape(node: ir.Node, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if node.op_type == "Identity":
        return shape
    if node.op_type == "Flatten":
        axis = node.attributes.get_int("axis", 1)
        return math.prod(shape[:axis]), math.prod(shape[axis:])
    if node.op_type == "Reshape":
        wanted = _constant_ints(node, 1)
        if wanted is None or math.prod(shape) == 0:
            return None
        if not node.attributes.get_int("allowzero", 0):
            wanted = tuple(shape[i] if size == 0 else size for i, size in enumerate(wanted))
        known = math.prod(size for size in wanted if size != -1)
        return tuple(math.prod(shape) // known if size == -1 else size for size in wanted)
    return _with_or_without_ones(node, shape)


def _with_or_without_ones(node: ir.Node, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    given = len(node.inputs) > 1 and node.inputs[1] is not None
    axes = _constant_ints(node, 1) if given else node.attributes.get_ints("axes", None)
    if axes is None:
        # Squeeze without axes drops every 1; unknown axes say nothing.
        no_axes = node.op_type == "Squeeze" and not given
        return tuple(size for size in shape if size != 1) if no_axes else None
    rank = len(shape) + (len(axes) if node.op_type == "Unsqueeze" else 0)
    places = {axis + rank if axis < 0 else axis for axis in axes}
    if node.op_type == "Squeeze":
        return tuple(size for place, size in enumerate(shape) if place not in places)
    sizes = iter(shape)
    return tuple(1 if place in places else next(sizes) for place in range(rank))


def _constant_ints(node: ir.Node, index: int) -> tuple[int, ...] | None:
    value = node.inputs[index]
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tuple(int(i) for i in tensor.numpy().reshape(-1))


def _cast(source: ir.DataType, target: ir.DataType, array: np.ndarray) -> ir.Tensor[Any] | str:
    exact = source.is_integer() and (target.is_integer() or target in _WIDE_FLOATS)
    if source.itemsize < 1 or target.itemsize < 1:
        return f"casts {source} to {target}, of less than a byte"
    if not exact and (source, target) not in _ROUNDED_ALIKE:
        return f"runtimes may round a cast of {source} to {target} in different ways"
    with np.errstate(over="ignore"):
        cast = array.astype(target.numpy())
    if target.is_integer() and not np.array_equal(cast.astype(array.dtype), array):
        return f"holds values beyond the range of {target}"
    if not np.isfinite(cast.astype(np.float64)).all():
        return f"holds values that are not finite as {target}"
    return ir.Tensor(cast, dtype=target)


_WIDE_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
