"""Exact comparison of tensors: bits, never tolerance."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import onnx_ir as ir

__all__ = ["array_bits", "same_content", "tensor_bits", "type_and_shape"]


def type_and_shape(tensor: ir.TensorProtocol) -> Hashable:
    """Return what two tensors must have in common before their bits are worth reading."""
    return tensor.dtype, tuple(tensor.shape)


def tensor_bits(tensor: ir.TensorProtocol) -> np.ndarray:
    """Return the stored bytes of ``tensor`` as ``uint8 [nbytes]``, uncopied where possible.

    Strings come as ``length:bytes`` each, so that no two lists of strings read the same.
    """
    if tensor.dtype == ir.DataType.STRING:
        texts = (b"%d:%b" % (len(text), text) for text in _strings(tensor))
        return np.frombuffer(b"".join(texts), np.uint8)
    if tensor.dtype.itemsize < 1:
        # numpy holds such an element in a whole byte, whose unused bits mean nothing.
        return np.frombuffer(tensor.tobytes(), np.uint8)
    return array_bits(tensor.numpy())


def array_bits(array: np.ndarray) -> np.ndarray:
    """Return the bytes of ``array`` in row-major order; a view if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def same_content(one: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    """Whether type, shape and every bit agree: ``0.0`` is not ``-0.0``, a NaN is itself."""
    if type_and_shape(one) != type_and_shape(other):
        return False
    return one is other or np.array_equal(tensor_bits(one), tensor_bits(other))


def _strings(tensor: ir.TensorProtocol) -> list[bytes]:
    if isinstance(tensor, ir.StringTensor):
        return list(tensor.string_data())
    # A lazy tensor of strings shows them as an array of objects.
    texts: list[str | bytes] = tensor.numpy().reshape(-1).tolist()
    return [text.encode() if isinstance(text, str) else text for text in texts]
