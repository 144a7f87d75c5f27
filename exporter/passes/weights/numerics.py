"""Arithmetic of weights in fewer bits: exact, deterministic, numpy alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from exporter.precision import Int8Weights

__all__ = [
    "Blocks",
    "Channels",
    "errors",
    "pack_nibbles",
    "quantize_blocks",
    "quantize_channels",
    "unpack_nibbles",
]

_INT8: dict[Int8Weights, tuple[int, int, type[np.integer]]] = {
    "int8": (127, 0, np.int8),
    "uint8": (127, 128, np.uint8),
    "int7": (64, 0, np.int8),
    "int8_full": (127, 0, np.int8),
}
"""Largest distance from the zero point, the zero point, and the type."""

_LARGEST_PAIR = 127
"""Most that two neighbours of one sign add up to before they are rounded, which adds 1 at most.

x86 CPUs without VNNI multiply pairs of bytes and add them in 16 bits, where
``255 * 128 = 32640`` fits, and a little more does not.
"""

_LARGEST_FLOAT = np.finfo(np.float32).max

_DIVISORS = (-8.0, 8.0, -8.8, 8.8, 7.0)
"""Scales that are tried for a block of 4 bits, as divisors of its largest number.

The number 8 below zero is one step longer than above. Dividing by more than 8 clips the
largest number to represent all others better.
"""


@dataclass(frozen=True)
class Channels:
    """Weights in 8 bits: ``(numbers - zero_point) * scale``.

    Args:
        numbers: ``[K, N]`` of uint8 or int8.
        scale: float32: ``[K]`` for channels along axis 0, ``[N]`` along axis 1, or ``[]``.
        axis: which of these; ``None`` for one scale.
        zero_point: the number that means zero.
    """

    numbers: np.ndarray
    scale: np.ndarray
    axis: int | None
    zero_point: int

    def restore(self) -> np.ndarray:
        """Return the weights ``[K, N]`` as float32."""
        scale = self.scale[:, None] if self.axis == 0 else self.scale
        return (self.numbers.astype(np.float32) - np.float32(self.zero_point)) * scale


@dataclass(frozen=True)
class Blocks:
    """Weights in 4 bits: ``(numbers - zero_points) * scales`` per block of a row.

    Args:
        numbers: uint8 0…15 ``[R, blocks, block]``; a last block that is not full is padded
            with zeros.
        scales: float16 or float32 ``[R, blocks]``.
        zero_points: uint8 0…15 ``[R, blocks]``, or ``None``: 8 everywhere.
        columns: of the weight itself.
    """

    numbers: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None
    columns: int

    def restore(self) -> np.ndarray:
        """Return the weights ``[R, columns]`` as float32, as the graph computes them."""
        zero = np.uint8(8) if self.zero_points is None else self.zero_points[:, :, None]
        numbers = self.numbers.astype(np.float32) - np.float32(zero)
        rows = numbers * self.scales.astype(np.float32)[:, :, None]
        return rows.reshape(len(rows), -1)[:, : self.columns]


def quantize_channels(
    weight: np.ndarray, axis: int | None, values: Int8Weights, summed_axes: Collection[int]
) -> Channels:
    """Quantize ``[K, N]`` symmetrically to 8 bits.

    Args:
        weight: finite float32 ``[K, N]``.
        axis: axis that keeps its scales: 0 -> scales ``[K]``, 1 -> ``[N]``; ``None`` -> ``[]``.
        values: how the 8 bits are used.
        summed_axes: axes that products sum over; none for a table that is only looked up.
    """
    levels, zero_point, kind = _INT8[values]
    across = None if axis is None else 1 - axis
    scale = np.abs(weight).max(axis=across).astype(np.float64) / levels
    if values == "int8":
        for summed in summed_axes:
            pair = _largest_pair(weight, summed, across)
            scale = np.maximum(scale, pair / _LARGEST_PAIR)
    # Zero, or too small for float32: such a channel is zero whatever its scale.
    scale = scale.astype(np.float32)
    scale = np.where(scale > 0, scale, np.float32(1)).astype(np.float32)
    # A scale that was rounded up would take masks of the lowest float32 to infinity.
    scale = np.minimum(scale, np.nextafter(_LARGEST_FLOAT / np.float32(levels), np.float32(0)))
    spread = scale[:, None] if axis == 0 else scale
    numbers = np.clip(np.rint(weight / spread), -levels, levels) + zero_point
    return Channels(numbers.astype(kind), scale, axis, zero_point)


def _largest_pair(weight: np.ndarray, summed: int, across: int | None) -> np.ndarray:
    """Return the largest sum of two neighbours along ``summed`` that have one sign."""
    ordered = np.moveaxis(weight, summed, 0).astype(np.float64)
    positive, negative = np.maximum(ordered, 0), np.maximum(-ordered, 0)
    pairs = np.maximum(positive[1:] + positive[:-1], negative[1:] + negative[:-1])
    return np.moveaxis(pairs, 0, summed).max(axis=across, initial=0)


def quantize_blocks(weight: np.ndarray, block: int, *, symmetric: bool, scales: np.dtype) -> Blocks:
    """Quantize ``[R, C]`` to 4 bits by blocks of ``block`` columns.

    Numbers are chosen for the scales as they are stored. Scales that float16 cannot hold, for
    weights very large or very small, are stored as float32 whatever was asked for.
    """
    rows, columns = weight.shape
    count = -(-columns // block)
    padded = np.zeros((rows, count * block), np.float32)
    padded[:, :columns] = weight
    blocks = padded.reshape(rows, count, block)
    quantize = _symmetric if symmetric else _asymmetric
    numbers, found, zero_points = quantize(blocks, scales)
    return Blocks(numbers, found, zero_points, columns)


def _symmetric(blocks: np.ndarray, kind: np.dtype) -> tuple[np.ndarray, np.ndarray, None]:
    """Take, block by block, the divisor with the smallest squared error."""
    at = np.abs(blocks).argmax(axis=-1)[..., None]
    extreme = np.take_along_axis(blocks, at, axis=-1)[..., 0]
    candidates = [_as_stored(extreme.astype(np.float64) / divisor, kind) for divisor in _DIVISORS]
    # One type for all: a candidate that float16 cannot hold rules it out.
    kind = np.result_type(*candidates)
    best = np.full(extreme.shape, np.inf)
    numbers = np.full(blocks.shape, 8, np.uint8)
    scales = np.ones(extreme.shape, kind)
    for candidate in candidates:
        scale = candidate.astype(np.float32)[..., None]
        found = np.clip(np.rint(blocks / scale), -8, 7)
        error = np.square((found * scale - blocks).astype(np.float64)).sum(axis=-1)
        better = error < best
        best[better] = error[better]
        numbers[better] = (found[better] + 8).astype(np.uint8)
        scales[better] = candidate[better]
    return numbers, scales, None


def _asymmetric(blocks: np.ndarray, kind: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spread 16 levels from the smallest to the largest number; zero is always among them."""
    low = np.minimum(blocks.min(axis=-1), 0).astype(np.float64)
    high = np.maximum(blocks.max(axis=-1), 0).astype(np.float64)
    scales = _as_stored((high - low) / 15, kind)
    scale = scales.astype(np.float32)
    zero_points = np.clip(np.rint(-low / scale), 0, 15).astype(np.uint8)
    numbers = np.rint(blocks / scale[..., None]) + zero_points[..., None]
    return np.clip(numbers, 0, 15).astype(np.uint8), scales, zero_points


def _as_stored(scales: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Round to ``kind``, or to float32 where that loses more than its precision."""
    wanted = scales.astype(np.float32)
    wanted = np.where(wanted == 0, np.float32(1), wanted)
    limits = np.finfo(kind)
    fits = (np.abs(wanted) >= limits.smallest_normal) & (np.abs(wanted) <= limits.max)
    return wanted.astype(kind if fits.all() else np.float32)


def pack_nibbles(numbers: np.ndarray) -> np.ndarray:
    """Pack 0…15 along the last axis, the first of each pair in the low bits: ``[…, 2n] -> n``."""
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros_like(numbers[..., :1])], axis=-1)
    return (numbers[..., 0::2] | numbers[..., 1::2] << 4).astype(np.uint8)


def unpack_nibbles(packed: np.ndarray) -> np.ndarray:
    """Undo :func:`pack_nibbles`: ``[…, n] -> […, 2n]``."""
    pairs = np.stack([packed & 15, packed >> 4], axis=-1)
    return pairs.reshape(*packed.shape[:-1], -1)


def errors(weight: np.ndarray, restored: np.ndarray) -> tuple[float, float]:
    """Return the relative root mean square error and the largest absolute one."""
    change = restored.astype(np.float64) - weight
    norm = float(np.linalg.norm(weight.astype(np.float64)))
    relative = float(np.linalg.norm(change)) / norm if norm else 0.0
    return relative, float(np.abs(change).max())
