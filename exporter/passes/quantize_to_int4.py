"""Store weights in 4 bits, and choose what products compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from exporter.errors import PassError
from exporter.passes.weights.coverage import RewriteUsesPass, StoredWeight
from exporter.passes.weights.emit import Emitter
from exporter.passes.weights.find import Weight, WeightUse
from exporter.passes.weights.integer_product import emit_integer_product, emit_transpose
from exporter.passes.weights.nibbles import Nibbles, emit_rows, store_nibbles
from exporter.passes.weights.numerics import (
    Blocks,
    Channels,
    errors,
    pack_nibbles,
    quantize_blocks,
    quantize_channels,
)
from exporter.precision import OPERATORS, Int4, Int4Run, Keep, Operator

__all__ = ["QuantizeToInt4Pass"]

_DEQUANTIZE_OPSET = 21
"""The first opset with 4-bit types and with blocks in ``DequantizeLinear``."""


@dataclass(frozen=True)
class _Stored:
    """A weight in 4 bits.

    Args:
        weight: the initializer that is replaced.
        run: how its products run, which may be simpler than what was asked for.
        flipped: the rows are the columns of the weight.
        block: numbers per scale.
        nibbles: the numbers; ``None`` where ``matrix`` holds them.
        matrix: for ``dequantize``: int4 or uint4 ``[K, N]``, scales and zero points
            ``[K / block, N]``.
        scale: for ``int8``: float32 ``[N]`` or ``[]``, the step of the expanded weight.
    """

    weight: ir.Value
    run: Int4Run
    flipped: bool
    block: int
    nibbles: Nibbles | None = None
    matrix: tuple[ir.Value, ir.Value, ir.Value | None] | None = None
    scale: ir.Value | None = None

    def read_by_rows(self, use: WeightUse) -> bool:
        """Whether a product sums along the stored rows."""
        return use.transposed is not self.flipped


class QuantizeToInt4Pass(RewriteUsesPass[_Stored]):
    """Store each weight once in 4 bits by blocks of the summed axis.

    ::

        y = MatMul(x, W [K, N])    ->    y = MatMul(x, expand(P [N, K / 32, 16], S [N, K / 32]))
        e = Gather(T [V, D], ids)  ->    e = expand(Gather(P, ids), Gather(S, ids))

    1. Numbers are bytes of two each; ``expand`` is shifts, ``Cast``, ``Sub``, ``Mul`` and
       ``Reshape``: standard operators of any opset from 13.
    2. Rows of tables are expanded as they are looked up, whatever ``run`` says. A table tied
       to a product is packed once, for both.
    3. ``run = "float"``: the expansion of a product's weight stands at the front of the
       graph, once; onnxruntime computes it when it loads the model.
    4. ``run = "int8"``: it goes on to 8 bits, ``Cast(Round(W / step))``, and the product is
       one of integers, as ``QuantizeToInt8Pass`` writes it.
    5. ``run = "matmul_nbits"``: onnxruntime's ``MatMulNBits`` reads the packed numbers.
       ``run = "dequantize"``: a 4-bit matrix ``[K, N]`` behind a blocked
       ``DequantizeLinear`` (opset 21 or later). Where a weight's products do not all sum
       along its blocks, or, for the latter, a lookup shares it, they run as ``float``, and
       ``detail`` says so.
    6. A last block that is not full is padded. Scales that float16 cannot hold are float32.
    7. Left, with the reason: what ``QuantizeToInt8Pass`` leaves.

    Args:
        store: block size, zero points, type of scales, and ``run``.
        operators, keep: see :class:`.StoreWeightsPass`.

    Raises:
        PassError: ``run = "dequantize"`` before opset 21.
    """

    def __init__(
        self,
        store: Int4 | None = None,
        operators: frozenset[Operator] = OPERATORS,
        keep: Sequence[Keep] = (),
    ) -> None:
        super().__init__(operators, keep)
        self._store = store or Int4()

    def rewrite(self, model: ir.Model) -> None:
        """Check the opset, and store all weights that can be."""
        self.check_opset(model)
        super().rewrite(model)

    def check_opset(self, model: ir.Model) -> None:
        """Refuse a graph whose opset lacks what this form needs.

        Raises:
            PassError: it does.
        """
        version = model.graph.opset_imports.get("", 1)
        if self._store.run == "dequantize" and version < _DEQUANTIZE_OPSET:
            raise PassError(
                f"int4 behind DequantizeLinear needs opset {_DEQUANTIZE_OPSET}, this graph is in "
                f"opset {version}; export a checkpoint with --opset {_DEQUANTIZE_OPSET}, convert a "
                "file with onnx.version_converter, or choose another form"
            )

    def convert(self, weight: Weight, emitter: Emitter) -> tuple[_Stored, StoredWeight] | str:
        """Quantize one weight."""
        array = weight.tensor.numpy()
        looked_up = any(use.is_lookup for use in weight.uses)
        flipped = weight.summed_axes == {0} and not looked_up
        rows = array.T if flipped else array
        summed = {1 - axis if flipped else axis for axis in weight.summed_axes}
        blocks = quantize_blocks(
            rows,
            self._store.block,
            symmetric=self._store.symmetric,
            scales=np.dtype(self._store.scales),
        )
        if (stored_bytes := _nbytes(blocks)) >= array.nbytes:
            return f"would take {stored_bytes:,} bytes in 4 bits, and {array.nbytes:,} now"
        run = self._store.run
        if run in ("matmul_nbits", "dequantize") and summed != {1}:
            run = "float"
        if run == "dequantize" and looked_up:
            run = "float"
        restored, scale = blocks.restore(), None
        if run == "int8" and summed:
            eight = _to_int8(restored, summed)
            scale = emitter.store(weight.value, f"{weight.name}_step", eight.scale)
            restored = eight.restore()
        relative, largest = errors(rows, restored)
        matrix = nibbles = None
        if run == "dequantize":
            matrix = _store_matrix(emitter, weight.value, blocks)
        else:
            nibbles = store_nibbles(emitter, weight.value, blocks)
        step_bytes = scale.const_value.nbytes if scale and scale.const_value else 0
        match = StoredWeight(
            value=weight.name,
            detail=self._detail(weight, blocks, run),
            saved_bytes=array.nbytes - stored_bytes - step_bytes,
            relative_error=relative,
            largest_error=largest,
            operations=tuple(use.name for use in weight.uses),
        )
        return _Stored(weight.value, run, flipped, self._store.block, nibbles, matrix, scale), match

    def _detail(self, weight: Weight, blocks: Blocks, run: Int4Run) -> str:
        kind = "symmetric" if self._store.symmetric else "with zero points"
        text = f"int4 in blocks of {self._store.block}, {kind}, {blocks.scales.dtype} scales"
        if weight.products:
            asked = "" if run == self._store.run else f" ({self._store.run} does not fit its uses)"
            text += f", products run as {run}{asked}"
        return f"{text}, {len(weight.uses)} uses"

    def rewrite_use(self, use: WeightUse, stored: _Stored, emitter: Emitter) -> ir.Value:
        """Expand the rows that are looked up, or multiply."""
        node, name = use.node, str(use.node.outputs[0].name)
        if use.is_lookup:
            assert stored.nibbles is not None
            return emit_rows(emitter, node, stored.nibbles, node.inputs[1], name)
        if stored.scale is not None:
            numbers = _int8_factor(emitter, stored, use, stored.scale)
            return emit_integer_product(emitter, node, numbers, stored.scale, np.int8(0))
        if stored.run == "matmul_nbits" and stored.nibbles is not None:
            return _multiply_nibbles(emitter, node, stored.nibbles)
        inputs = [node.inputs[0], _factor(emitter, stored, use), *node.inputs[2:]]
        (product,) = emitter.op(node, node.op_type, inputs, f"{name}_product")
        return product


def _nbytes(blocks: Blocks) -> int:
    points = 0 if blocks.zero_points is None else pack_nibbles(blocks.zero_points).nbytes
    return -(-blocks.numbers.size // 2) + blocks.scales.nbytes + points


def _to_int8(restored: np.ndarray, summed: set[int]) -> Channels:
    axis = 1 - min(summed) if len(summed) == 1 else None
    return quantize_channels(restored, axis, "int8", summed)


def _factor(emitter: Emitter, stored: _Stored, use: WeightUse) -> ir.Value:
    """Return the weight as float32 ``[K, N]``, computed once at the front of its graph."""
    front, name = emitter.front(stored.weight), str(stored.weight.name)
    if stored.matrix is not None:
        return _dequantize(emitter, stored, name)
    assert stored.nibbles is not None
    key = ("expanded", stored.nibbles.packed)
    rows = emitter.once(key)
    if rows is None:
        rows = emitter.remember(key, emit_rows(emitter, front, stored.nibbles, None, name))
    return emit_transpose(emitter, stored.weight, rows) if stored.read_by_rows(use) else rows


def _int8_factor(emitter: Emitter, stored: _Stored, use: WeightUse, scale: ir.Value) -> ir.Value:
    """Return the weight as int8 ``[K, N]``, computed once at the front of its graph."""
    weight = _factor(emitter, stored, use)
    key = ("int8", weight)
    if (known := emitter.once(key)) is not None:
        return known
    front, name = emitter.front(stored.weight), str(stored.weight.name)
    (steps,) = emitter.op(front, "Div", [weight, scale], f"{name}_in_steps")
    (rounded,) = emitter.op(front, "Round", [steps], f"{name}_rounded")
    to = {"to": int(ir.DataType.INT8)}
    (numbers,) = emitter.op(front, "Cast", [rounded], f"{name}_int8", to)
    return emitter.remember(key, numbers)


def _multiply_nibbles(emitter: Emitter, node: ir.Node, stored: Nibbles) -> ir.Value:
    name = str(node.outputs[0].name)
    emitter.import_domain("com.microsoft", 1)
    scales = _float_scales(emitter, stored.scales)
    inputs = [node.inputs[0], stored.packed, scales]
    if stored.zero_points is not None:
        inputs.append(stored.zero_points)
    assert stored.packed.shape is not None
    attributes = {
        "K": stored.columns,
        "N": stored.packed.shape[0],
        "bits": 4,
        "block_size": stored.block,
    }
    (product,) = emitter.op(
        node, "MatMulNBits", inputs, f"{name}_product", attributes, domain="com.microsoft"
    )
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        (product,) = emitter.op(node, "Add", [product, node.inputs[2]], f"{name}_biased")
    return product


def _float_scales(emitter: Emitter, scales: ir.Value) -> ir.Value:
    """Return scales as float32, cast once at the front of their graph."""
    if scales.dtype == ir.DataType.FLOAT:
        return scales
    key = ("float", scales)
    if (known := emitter.once(key)) is not None:
        return known
    to = {"to": int(ir.DataType.FLOAT)}
    (cast,) = emitter.op(emitter.front(scales), "Cast", [scales], f"{scales.name}_float", to)
    return emitter.remember(key, cast)


def _store_matrix(
    emitter: Emitter, weight: ir.Value, blocks: Blocks
) -> tuple[ir.Value, ir.Value, ir.Value | None]:
    """Store blocks as a 4-bit matrix ``[K, N]``, as ``DequantizeLinear`` reads it."""
    rows = blocks.numbers.reshape(len(blocks.numbers), -1)[:, : blocks.columns].T
    name = str(weight.name)
    scales = emitter.store(weight, f"{name}_scales", blocks.scales.T)
    if blocks.zero_points is None:
        numbers = (rows.astype(np.int8) - 8).astype(ml_dtypes.int4)
        return emitter.store(weight, f"{name}_int4", numbers), scales, None
    numbers = rows.astype(ml_dtypes.uint4)
    points = blocks.zero_points.T.astype(ml_dtypes.uint4)
    zero_points = emitter.store(weight, f"{name}_zero_points", points)
    return emitter.store(weight, f"{name}_uint4", numbers), scales, zero_points


def _dequantize(emitter: Emitter, stored: _Stored, name: str) -> ir.Value:
    """Dequantize at the front of the graph: at every inference, once for all uses.

    Inside a loop body onnxruntime would look for the numbers in the body, and refuse to load.
    """
    assert stored.matrix is not None
    numbers, scales, zero_points = stored.matrix
    key = ("dequantized", numbers)
    if (known := emitter.once(key)) is not None:
        return known
    inputs = [numbers, _float_scales(emitter, scales)]
    if zero_points is not None:
        inputs.append(zero_points)
    blocks = {"axis": 0, "block_size": stored.block}
    front = emitter.front(stored.weight)
    (matrix,) = emitter.op(front, "DequantizeLinear", inputs, f"{name}_float", blocks)
    return emitter.remember(key, matrix)
