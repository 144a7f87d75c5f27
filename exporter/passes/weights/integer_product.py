"""A product of quantized activations with quantized weights, in standard operators."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from exporter.passes.weights.emit import Emitter

__all__ = ["emit_integer_product", "emit_transpose"]


def emit_integer_product(
    emitter: Emitter, node: ir.Node, numbers: ir.Value, scale: ir.Value, zero_point: np.generic
) -> ir.Value:
    """Compute a ``MatMul`` or ``Gemm`` in integers, before ``node``.

    ::

        q, s, z = DynamicQuantizeLinear(x)           once per x and graph
        y = Cast(MatMulInteger(q, W, z, zero)) * (s * scale) [+ bias of the Gemm]

    This is the form that onnxruntime fuses to one kernel, and that runs unfused elsewhere.

    Args:
        emitter: adds the nodes.
        node: the product; its first input is ``x``, float32 ``[…, K]``.
        numbers: uint8 or int8 ``[K, N]``.
        scale: float32 ``[N]`` or ``[]``.
        zero_point: the number that means zero, in the type of ``numbers``.
    """
    x, base = node.inputs[0], str(node.outputs[0].name)
    assert x is not None
    quantized, activation_scale, activation_zero = _quantize(emitter, node, x)
    inputs: list[ir.Value | None] = [quantized, numbers, activation_zero]
    if zero_point:
        inputs.append(emitter.constant("weight_zero_point", np.asarray(zero_point)))
    (total,) = emitter.op(node, "MatMulInteger", inputs, f"{base}_i32")
    (number,) = emitter.op(node, "Cast", [total], f"{base}_f32", {"to": int(ir.DataType.FLOAT)})
    (factor,) = emitter.op(node, "Mul", [activation_scale, scale], f"{base}_step")
    (product,) = emitter.op(node, "Mul", [number, factor], f"{base}_product")
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return product
    (result,) = emitter.op(node, "Add", [product, bias], f"{base}_biased")
    return result


def _quantize(emitter: Emitter, node: ir.Node, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return numbers, scale and zero point of ``x``, made by the first product of a graph."""
    key = ("quantized activation", node.graph, x)
    known = emitter.once(key)
    if known is None:
        made = emitter.op(node, "DynamicQuantizeLinear", [x], f"{x.name}_q8", outputs=3)
        known = emitter.remember(key, made[0])
    maker = known.producer()
    assert maker is not None
    return maker.outputs[0], maker.outputs[1], maker.outputs[2]


def emit_transpose(emitter: Emitter, weight: ir.Value, value: ir.Value) -> ir.Value:
    """Return the transpose of the matrix ``value``, made once, at the front of its graph.

    onnxruntime computes it when it loads the model.

    Args:
        emitter: adds the node.
        weight: an initializer of the graph in question.
        value: the matrix: ``weight`` itself, or made of it.
    """
    key = ("transposed", value)
    if (known := emitter.once(key)) is not None:
        return known
    (turned,) = emitter.op(
        emitter.front(weight), "Transpose", [value], f"{value.name}_t", {"perm": [1, 0]}
    )
    return emitter.remember(key, turned)
