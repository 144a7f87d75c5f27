"""Store weights in 8 bits, and multiply in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from exporter.passes.weights.coverage import RewriteUsesPass, StoredWeight
from exporter.passes.weights.emit import Emitter
from exporter.passes.weights.find import Weight, WeightUse
from exporter.passes.weights.integer_product import emit_integer_product, emit_transpose
from exporter.passes.weights.numerics import errors, quantize_channels
from exporter.precision import OPERATORS, Int8, Keep, Operator

__all__ = ["QuantizeToInt8Pass"]


@dataclass(frozen=True)
class _Stored:
    """A weight in 8 bits.

    Args:
        numbers: initializer ``[K, N]``; ``[N, K]`` where ``flipped``.
        scale: initializer, float32: one per channel, or ``[]``.
        axis: axis of ``numbers`` that has a scale each; ``None``: one scale.
        zero_point: the number that means zero, in the type of ``numbers``.
        flipped: stored as the transpose of what it was.
    """

    numbers: ir.Value
    scale: ir.Value
    axis: int | None
    zero_point: np.generic
    flipped: bool


class QuantizeToInt8Pass(RewriteUsesPass[_Stored]):
    """Store each weight once in 8 bits; products quantize their activations at run time.

    ::

        y = MatMul(x, W)        q, s, z = DynamicQuantizeLinear(x)
                          ->    y = Cast(MatMulInteger(q, Wq, z)) * (s * scale)

        e = Gather(T, ids) ->   e = Cast(Gather(Tq, ids)) * scale

    1. Weights of ``MatMul`` and ``Gemm`` (right factor) and tables of ``Gather`` (rows), in
       the main graph, branches and loop bodies. One ``DynamicQuantizeLinear`` serves all
       products of one value in one graph.
    2. Scales stand along the axis that products keep; along the columns for a table that is
       only looked up, since a scale per row would cost 3 % of a table 128 wide. A table that
       is also an output layer has one per row, for both uses. A weight whose products sum over
       either axis has a single one.
    3. A weight that products read transposed is stored that way; one that is read in both
       ways keeps one ``Transpose`` of the 8-bit numbers, folded by onnxruntime at load.
    4. Left, with the reason: weights that are no matrices of finite float32 numbers, graph
       inputs and outputs, left factors, stacks of layers' weights, a ``Gemm`` with factors
       ``alpha``, ``beta`` or ``transA``, weights that anything else uses, and weights that
       would not take fewer bytes.

    Activations get 8 bits for a whole tensor, over its range at the time: what a batch holds
    has an influence on the results of each of its rows.

    Args:
        store: how 8 bits are used.
        operators, keep: see :class:`.StoreWeightsPass`.
    """

    def __init__(
        self,
        store: Int8 | None = None,
        operators: frozenset[Operator] = OPERATORS,
        keep: Sequence[Keep] = (),
    ) -> None:
        super().__init__(operators, keep)
        self._store = store or Int8()

    def convert(self, weight: Weight, emitter: Emitter) -> tuple[_Stored, StoredWeight] | str:
        """Quantize one weight."""
        array = weight.tensor.numpy()
        axis = self._axis(weight)
        channels = quantize_channels(array, axis, self._store.weights, weight.summed_axes)
        stored_bytes = channels.numbers.nbytes + channels.scale.nbytes
        if stored_bytes >= array.nbytes:
            return f"would take {stored_bytes:,} bytes in 8 bits, and {array.nbytes:,} now"
        relative, largest = errors(array, channels.restore())
        flipped = weight.summed_axes == {1} and not any(use.is_lookup for use in weight.uses)
        stored = _Stored(
            numbers=emitter.store(
                weight.value,
                f"{weight.name}_q8",
                channels.numbers.T if flipped else channels.numbers,
            ),
            scale=emitter.store(weight.value, f"{weight.name}_scale", channels.scale),
            axis=1 - axis if flipped and axis is not None else axis,
            zero_point=channels.numbers.dtype.type(channels.zero_point),
            flipped=flipped,
        )
        scales = "one scale" if axis is None else f"{channels.scale.size:,} scales"
        match = StoredWeight(
            value=weight.name,
            detail=f"{self._store.weights}, {scales}, {len(weight.uses)} uses",
            saved_bytes=array.nbytes - stored_bytes,
            relative_error=relative,
            largest_error=largest,
            operations=tuple(use.name for use in weight.uses),
        )
        return stored, match

    def _axis(self, weight: Weight) -> int | None:
        if not self._store.per_channel or len(weight.summed_axes) > 1:
            return None
        return 1 - min(weight.summed_axes, default=0)

    def rewrite_use(self, use: WeightUse, stored: _Stored, emitter: Emitter) -> ir.Value:
        """Multiply by the numbers, or look rows of them up."""
        if use.is_lookup:
            return _look_up(use.node, stored, emitter)
        numbers = stored.numbers
        if use.transposed is not stored.flipped:
            numbers = emit_transpose(emitter, numbers, numbers)
        return emit_integer_product(emitter, use.node, numbers, stored.scale, stored.zero_point)


def _look_up(node: ir.Node, stored: _Stored, emitter: Emitter) -> ir.Value:
    indices, base = node.inputs[1], str(node.outputs[0].name)
    (rows,) = emitter.op(node, "Gather", [stored.numbers, indices], f"{base}_rows", {"axis": 0})
    (values,) = emitter.op(node, "Cast", [rows], f"{base}_numbers", {"to": int(ir.DataType.FLOAT)})
    if stored.zero_point:
        zero = emitter.constant("table_zero_point", np.asarray(stored.zero_point, np.float32))
        (values,) = emitter.op(node, "Sub", [values, zero], f"{base}_centred")
    scale = stored.scale
    if stored.axis == 0:
        (row_scales,) = emitter.op(
            node, "Gather", [scale, indices], f"{base}_row_scales", {"axis": 0}
        )
        last = emitter.constant("last_axis", np.array([-1], np.int64))
        (scale,) = emitter.op(node, "Unsqueeze", [row_scales, last], f"{base}_row_scale")
    (result,) = emitter.op(node, "Mul", [values, scale], f"{base}_values")
    return result
