"""Weights of 4 bits in a graph: stored as bytes, expanded by standard operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from exporter.passes.weights.emit import Emitter
from exporter.passes.weights.numerics import Blocks, pack_nibbles

__all__ = ["Nibbles", "emit_rows", "store_nibbles"]

_FLOAT = {"to": int(ir.DataType.FLOAT)}


@dataclass(frozen=True)
class Nibbles:
    """Stored rows of 4-bit numbers.

    Args:
        packed: uint8 initializer ``[R, blocks, block / 2]``, two numbers to a byte.
        scales: float16 or float32 initializer ``[R, blocks]``.
        zero_points: uint8 initializer ``[R, ceil(blocks / 2)]``, or ``None``: 8 everywhere.
        blocks: per row.
        block: numbers in each.
        columns: numbers of a row that are meant; the rest fills the last block.
    """

    packed: ir.Value
    scales: ir.Value
    zero_points: ir.Value | None
    blocks: int
    block: int
    columns: int

    @property
    def nbytes(self) -> int:
        """Bytes of the initializers."""
        parts = (self.packed, self.scales, self.zero_points)
        return sum(part.const_value.nbytes for part in parts if part and part.const_value)


def store_nibbles(emitter: Emitter, weight: ir.Value, blocks: Blocks) -> Nibbles:
    """Add the initializers of ``blocks`` beside the initializer ``weight``."""
    name = str(weight.name)
    zero_points = None
    if blocks.zero_points is not None:
        packed = pack_nibbles(blocks.zero_points)
        zero_points = emitter.store(weight, f"{name}_zero_points", packed)
    return Nibbles(
        packed=emitter.store(weight, f"{name}_packed", pack_nibbles(blocks.numbers)),
        scales=emitter.store(weight, f"{name}_scales", blocks.scales),
        zero_points=zero_points,
        blocks=blocks.numbers.shape[1],
        block=blocks.numbers.shape[2],
        columns=blocks.columns,
    )


def emit_rows(
    emitter: Emitter, anchor: ir.Node, stored: Nibbles, indices: ir.Value | None, name: str
) -> ir.Value:
    """Expand rows to float32, with nodes before ``anchor``.

    ::

        [R, blocks, block / 2] -> low and high bits -> [R, blocks, block / 2, 2]
                               -> - zero point, * scale -> [R, columns]

    Args:
        emitter: adds the nodes.
        anchor: node before which they stand.
        stored: the numbers.
        indices: int64 ``[…]``: expand these rows, to ``[…, columns]``; ``None``: all rows,
            ``[R, columns]``, from constants alone, so that a runtime can do it at load.
        name: what the new values are called after.
    """
    rows = _Rows(emitter, anchor, indices, name)
    numbers = rows.as_float(rows.split(rows.take(stored.packed)))
    if stored.zero_points is None:
        zero = emitter.constant("middle_of_16", np.array(8, np.float32))
    else:
        pairs = rows.split(rows.take(stored.zero_points))
        points = rows.join(pairs, 2 * -(-stored.blocks // 2), stored.blocks)
        zero = rows.as_float(rows.spread(points))
    scale = rows.take(stored.scales)
    if stored.scales.dtype != ir.DataType.FLOAT:
        scale = rows.as_float(scale)
    centred = rows.op("Sub", [numbers, zero], "centred")
    values = rows.op("Mul", [centred, rows.spread(scale)], "scaled")
    return rows.join(values, stored.blocks * stored.block, stored.columns)


@dataclass(frozen=True)
class _Rows:
    """Steps of an expansion, of all rows or of those looked up."""

    emitter: Emitter
    anchor: ir.Node
    indices: ir.Value | None
    name: str

    def op(
        self,
        operator: str,
        inputs: list[ir.Value],
        suffix: str,
        attributes: Mapping[str, int | str] | None = None,
    ) -> ir.Value:
        (value,) = self.emitter.op(
            self.anchor, operator, inputs, f"{self.name}_{suffix}", attributes
        )
        return value

    def take(self, value: ir.Value) -> ir.Value:
        """Choose the rows of an initializer."""
        if self.indices is None:
            return value
        return self.op("Gather", [value, self.indices], "rows", {"axis": 0})

    def as_float(self, value: ir.Value) -> ir.Value:
        return self.op("Cast", [value], "float", _FLOAT)

    def split(self, packed: ir.Value) -> ir.Value:
        """Part bytes into their low and high bits: uint8 ``[…, n]`` -> ``[…, n, 2]``."""
        bytes_twice = self.op("Unsqueeze", [packed, self.ints("last_axis", -1)], "bytes")
        lift = self.emitter.constant("low_bits_up", np.array([4, 0], np.uint8))
        lower = self.emitter.constant("four_bits", np.array(4, np.uint8))
        lifted = self.op("BitShift", [bytes_twice, lift], "lifted", {"direction": "LEFT"})
        return self.op("BitShift", [lifted, lower], "numbers", {"direction": "RIGHT"})

    def spread(self, value: ir.Value) -> ir.Value:
        """Let one value per block stand for all its numbers: ``[…]`` -> ``[…, 1, 1]``."""
        return self.op("Unsqueeze", [value, self.ints("last_axes", -2, -1)], "per_block")

    def join(self, value: ir.Value, columns: int, meant: int) -> ir.Value:
        """Join all axes behind those of the rows to ``columns``, and keep the first ``meant``."""
        if self.indices is None:
            shape = self.ints("rows_of", -1, columns)
        else:
            lead = self.op("Shape", [self.indices], "indices_shape")
            shape = self.op("Concat", [lead, self.ints("columns", columns)], "shape", {"axis": 0})
        joined = self.op("Reshape", [value, shape], "joined")
        if meant == columns:
            return joined
        bounds = [self.ints("start", 0), self.ints("end", meant), self.ints("last_axis", -1)]
        return self.op("Slice", [joined, *bounds], "meant")

    def ints(self, name: str, *values: int) -> ir.Value:
        return self.emitter.constant(name, np.array(values, np.int64))
