"""Arrays in JSON: base64 of their little-endian bytes, which a browser reads without a library."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["pack_array", "unpack_array"]


def pack_array(array: np.ndarray) -> dict[str, Any]:
    """Return ``{"dtype", "shape", "data"}``, plain JSON values."""
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "data": base64.b64encode(little.tobytes()).decode("ascii"),
    }


def unpack_array(packed: Mapping[str, Any]) -> np.ndarray:
    """Read what :func:`pack_array` gave.

    Raises:
        ValueError: no base64, no such type, or another number of elements than the shape has.
        KeyError: a key is missing.
        TypeError: a value is of another type, or no such type exists.
    """
    raw = base64.b64decode(packed["data"], validate=True)  # binascii.Error is a ValueError
    dtype = np.dtype(packed["dtype"])
    array = np.frombuffer(raw, dtype.newbyteorder("<")).reshape(packed["shape"])
    return array.astype(dtype)
