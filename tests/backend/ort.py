"""Run a model in onnxruntime exactly as it is written, with values of every type."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime import OrtValue

__all__ = ["Session", "same_bits"]


class Session:
    """A loaded model: no graph optimizations, no packing of weights ahead of time, 1 thread.

    Raises:
        Exception: onnxruntime does not accept the model.
    """

    def __init__(self, content: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        self._names = [value.name for value in self._session.get_outputs()]
        # numpy has no type for these, so what onnxruntime gives must be read as bytes.
        self._as_bytes = any(
            value.type.startswith(("tensor(bfloat", "tensor(float8", "tensor(float4"))
            or value.type.endswith(("int4)", "int2)"))
            for value in self._session.get_outputs()
        )

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Return the outputs in order: arrays, lists of them, or ``None``."""
        if self._as_bytes:
            values = {name: _to_value(feed, always=True) for name, feed in feeds.items()}
            return [
                _to_array(value) for value in self._session.run_with_ort_values(self._names, values)
            ]
        values = {name: _to_value(feed, always=False) for name, feed in feeds.items()}
        return self._session.run(None, values)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two outputs agree in kind, type, shape and every bit."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_bits, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        if one.dtype == object:  # strings: their bytes would be those of pointers
            return one.tolist() == other.tolist()
        return one.tobytes() == other.tobytes()
    return type(one) is type(other) and one == other


def _to_value(feed: Any, *, always: bool) -> Any:
    if not isinstance(feed, np.ndarray):
        return feed
    if feed.dtype.isbuiltin == 1:
        return OrtValue.ortvalue_from_numpy(feed) if always else feed
    proto = numpy_helper.from_array(feed)
    value = OrtValue.ortvalue_from_shape_and_type(feed.shape, proto.data_type)
    ctypes.memmove(value.data_ptr(), proto.raw_data, len(proto.raw_data))
    return value


def _to_array(value: OrtValue) -> np.ndarray:
    if value.data_type() == "tensor(string)":
        return value.numpy()
    proto = onnx.TensorProto(
        dims=value.shape(),
        data_type=value.element_type(),
        raw_data=ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()),
    )
    return numpy_helper.to_array(proto)
