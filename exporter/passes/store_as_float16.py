"""Store weights as float16, and compute as before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from exporter.passes.weights.coverage import StoredWeight, StoreWeightsPass, replace_node
from exporter.passes.weights.emit import Emitter
from exporter.passes.weights.find import Weight
from exporter.passes.weights.numerics import errors

__all__ = ["StoreAsFloat16Pass"]

_LARGEST = float(np.finfo(np.float16).max)
_SMALLEST = 2.0**-8
"""Below this largest number a tensor is rescaled: most of it would be subnormal, or zero."""

_LOST_SHARE = 0.001
"""Share of numbers that may become zero unsaid: among normal weights a few are that small."""


@dataclass(frozen=True)
class _Stored:
    """A weight as float16: ``float32(numbers) * 2**exponent``."""

    numbers: ir.Value
    exponent: int


class StoreAsFloat16Pass(StoreWeightsPass[_Stored]):
    """Store each weight once as float16 and expand it in front of its uses.

    ::

        y = MatMul(x, W)      ->    F = Cast <to = float> (W16); y = MatMul(x, F)
        e = Gather(T, ids)    ->    e = Cast <to = float> (Gather(T16, ids))

    1. Arithmetic stays in float32, so it needs no kernels for float16 and cannot overflow.
       onnxruntime computes the ``Cast`` of a whole weight once, when it loads the model;
       rows of tables are expanded as they are looked up, and take half the memory.
    2. Weights are the factors of products and tables of lookups, of any rank, stacks of
       layers' weights among them; whatever else uses one reads the expanded form. Masks,
       biases, normalization and other constants of the computation stay as they are.
    3. A weight with a number beyond 65504, or with none above 2⁻⁸, is divided by a power of
       two to fit, exactly, and multiplied again after the ``Cast``. Nothing is clipped. Such
       weights, and those of which float16 turns more than 0.1 % of the numbers to zero, have a
       ``notice``.
    4. Left, with the reason: what is not finite, not float32, a graph input or an output.

    Args:
        operators, keep: see :class:`.StoreWeightsPass`.
    """

    def obstacles(self, weight: Weight) -> Sequence[str]:
        """Nothing: every use reads float32."""
        return ()

    def convert(self, weight: Weight, emitter: Emitter) -> tuple[_Stored, StoredWeight] | str:
        """Round one weight to float16."""
        array = weight.tensor.numpy()
        exponent = _exponent(float(np.abs(array).max()))
        # By float64: neither factor nor quotient leaves its range.
        numbers = (array.astype(np.float64) * 2.0**-exponent).astype(np.float16)
        # Rounded up, the lowest float32, as masks have it, would come back as infinity.
        too_large = np.abs(numbers.astype(np.float64)) * 2.0**exponent > np.finfo(np.float32).max
        numbers = np.where(too_large, np.nextafter(numbers, np.float16(0)), numbers)
        restored = numbers.astype(np.float32) * np.float32(2.0**exponent)
        relative, largest = errors(array, restored)
        lost = int(np.count_nonzero((restored == 0) & (array != 0)))
        notices = [f"divided by 2**{exponent} to fit float16"] if exponent else []
        if lost > _LOST_SHARE * array.size:
            notices.append(f"{lost:,} of {array.size:,} numbers are too small and became zero")
        match = StoredWeight(
            value=weight.name,
            detail=f"float16, {len(weight.uses)} uses",
            saved_bytes=array.nbytes - numbers.nbytes,
            relative_error=relative,
            largest_error=largest,
            operations=tuple(use.name for use in weight.uses),
            notice="; ".join(notices) or None,
        )
        return _Stored(emitter.store(weight.value, f"{weight.name}_fp16", numbers), exponent), match

    def apply(
        self, model: ir.Model, chosen: Sequence[tuple[Weight, _Stored]], emitter: Emitter
    ) -> None:
        """Look up in the stored table; expand for everything else."""
        for weight, stored in chosen:
            expanded = None
            sizes = {use.node for use in weight.sizes}
            for node, index in list(weight.value.uses()):
                if node.op_type == "Gather" and not node.domain and index == 0:
                    rows = [stored.numbers, node.inputs[1]]
                    axis = node.attributes.get_int("axis", 0)
                    name = str(node.outputs[0].name)
                    (looked_up,) = emitter.op(node, "Gather", rows, f"{name}_fp16", {"axis": axis})
                    replace_node(node, _expand(emitter, node, looked_up, stored.exponent, name))
                    continue
                if node in sizes:
                    continue
                if expanded is None:
                    front = emitter.front(weight.value)
                    name = weight.name
                    expanded = _expand(emitter, front, stored.numbers, stored.exponent, name)
                node.replace_input_with(index, expanded)


def _exponent(largest: float) -> int:
    """Return the power of two to divide by, so that ``largest`` comes to 2¹⁴…2¹⁵."""
    if largest == 0 or _SMALLEST <= largest <= _LARGEST:
        return 0
    return max(math.frexp(largest)[1] - 15, -126)  # 2**-126: the least normal float32


def _expand(
    emitter: Emitter, anchor: ir.Node, value: ir.Value, exponent: int, name: str
) -> ir.Value:
    attributes = {"to": int(ir.DataType.FLOAT)}
    (expanded,) = emitter.op(anchor, "Cast", [value], f"{name}_expanded", attributes)
    if exponent:
        factor = emitter.constant("weight_factor", np.array(2.0**exponent, np.float32))
        (expanded,) = emitter.op(anchor, "Mul", [expanded, factor], f"{name}_rescaled")
    return expanded
