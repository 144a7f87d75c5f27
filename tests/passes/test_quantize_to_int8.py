from __future__ import annotations

from typing import get_args

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from exporter.errors import PassError
from exporter.passes.quantize_to_int8 import QuantizeToInt8Pass
from exporter.precision import Int8, Int8Weights, Keep
from tests.passes.helpers import assert_same_bits, build, op_types, run
from tests.passes.quantize_helpers import (
    apply,
    float_matrices,
    initializers,
    noise,
    outputs_agree,
    product,
)

KINDS: tuple[Int8Weights, ...] = get_args(Int8Weights)


def dynamic(x: np.ndarray) -> tuple[np.ndarray, np.float32, int]:
    """``DynamicQuantizeLinear`` by hand: 8 bits over the range of ``x`` and zero."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = int(np.clip(np.rint(-low / scale), 0, 255))
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64), scale, zero


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_the_integer_product_computed_by_hand(kind: Int8Weights) -> None:
    weight, x = noise(50, 6), noise(3, 50, seed=1)
    model, _ = apply(QuantizeToInt8Pass(Int8(kind)), product(weight))
    stored = initializers(model)
    levels = 64 if kind == "int7" else 127
    zero_point = 128 if kind == "uint8" else 0
    numbers = stored["w_q8"].astype(np.int64) - zero_point
    if kind != "int8":
        expected = (np.abs(weight).max(axis=0).astype(np.float64) / levels).astype(np.float32)
        np.testing.assert_array_equal(stored["w_scale"], expected)
    np.testing.assert_array_equal(numbers, np.rint(weight / stored["w_scale"]))
    q, scale, zero = dynamic(x)
    total = (q - zero) @ numbers
    expected = total.astype(np.float32) * (scale * stored["w_scale"])
    assert_same_bits(run(model, {"x": x}), [expected])


def test_all_kinds_store_the_type_that_they_name() -> None:
    types = {
        kind: initializers(apply(QuantizeToInt8Pass(Int8(kind)), product(noise(8, 8)))[0])["w_q8"]
        for kind in KINDS
    }
    assert {kind: array.dtype.name for kind, array in types.items()} == {
        "int8": "int8",
        "uint8": "uint8",
        "int7": "int8",
        "int8_full": "int8",
    }
    assert np.abs(types["int7"].astype(int)).max() == 64
    assert np.abs(types["int8_full"].astype(int)).max() == 127


def saturating_product(q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sum up as AVX2 does: products of two neighbours in 16 bits that saturate."""
    products = q[:, :, None] * weight[None]
    pairs = np.clip(products[:, 0::2] + products[:, 1::2], -(2**15), 2**15 - 1)
    return pairs.sum(axis=1)


@pytest.mark.parametrize(("kind", "safe"), [("int8", True), ("int7", True), ("int8_full", False)])
def test_only_the_full_signed_range_can_exceed_16_bits(kind: Int8Weights, safe: bool) -> None:
    signs = np.random.default_rng(0).choice([-1, 1], (1, 16))
    weight = (signs * np.random.default_rng(1).uniform(0.9, 1, (1024, 16))).astype(np.float32)
    x = np.random.default_rng(2).uniform(0.95, 1.05, (2, 1024)).astype(np.float32)
    model, _ = apply(QuantizeToInt8Pass(Int8(kind)), product(weight))
    stored = initializers(model)
    numbers = stored["w_q8"].astype(np.int64)
    q, scale, zero = dynamic(x)
    assert zero == 0  # activations are at the top of their range
    computed = saturating_product(q, numbers) * (scale * stored["w_scale"])
    expected = x.astype(np.float64) @ weight
    error = np.linalg.norm(computed - expected) / np.linalg.norm(expected)
    assert error < 0.005 if safe else error > 0.2
    assert (saturating_product(q, numbers) == q @ numbers).all() == safe


@pytest.mark.parametrize("kind", ["int8", "uint8", "int7"])
def test_the_runtime_adds_large_weights_up_within_half_a_percent(kind: Int8Weights) -> None:
    weight = np.random.default_rng(0).uniform(0.9, 1, (1024, 64)).astype(np.float32)
    x = np.random.default_rng(1).uniform(0.95, 1.05, (4, 1024)).astype(np.float32)
    model, _ = apply(QuantizeToInt8Pass(Int8(kind)), product(weight))
    outputs_agree(model, product(weight), {"x": x}, 0.005)


def test_products_of_one_value_share_its_quantization_in_each_graph() -> None:
    text = """
        agraph (float[M, 32] x, bool c) => (float[M, 32] y) {
            a = MatMul (x, wa)
            b = MatMul (x, wb)
            s = Add (a, b)
            z = If (c) <
                then_branch = one () => (float[M, 32] t) { t = MatMul (x, wa) },
                else_branch = two () => (float[M, 32] e) { e = MatMul (s, wb) }
            >
            y = Add (s, z)
        }
    """
    before = build(text, {"wa": noise(32, 32), "wb": noise(32, 32, seed=1)})
    model, quantize = apply(QuantizeToInt8Pass(), before)
    assert op_types(model).count("DynamicQuantizeLinear") == 3
    assert op_types(model).count("MatMulInteger") == 4
    assert "MatMul" not in op_types(model)
    assert sorted(initializers(model)) == ["wa_q8", "wa_scale", "wb_q8", "wb_scale"]
    assert (quantize.coverage.operations_reached, quantize.coverage.operations_total) == (4, 4)
    for choice in (True, False):
        feeds = {"x": noise(3, 32, seed=2), "c": np.array(choice)}
        outputs_agree(model, before, feeds, 0.03)


LOOP = """
    agraph (float[M, 32] x) => (float[M, 32] y) {
        y = Loop (trips, , x) <
            body = layer (int64 i, bool c, float[M, 32] h) => (bool co, float[M, 32] ho) {
                co = Identity (c)
                a = MatMul (h, wa)
                b = MatMul (h, wb)
                s = Add (a, b)
                ho = Tanh (s)
            }
        >
    }
"""


def loop() -> ir.Model:
    weights = {"wa": noise(32, 32, scale=0.2), "wb": noise(32, 32, seed=1, scale=0.2)}
    return build(LOOP, {**weights, "trips": np.array(3)})


def test_weights_of_a_loop_body_are_stored_outside_and_fused_inside(tmp_path) -> None:
    model, quantize = apply(QuantizeToInt8Pass(), loop())
    assert sorted(initializers(model)) == ["trips", "wa_q8", "wa_scale", "wb_q8", "wb_scale"]
    assert quantize.coverage.operations_reached == 2
    outputs_agree(model, loop(), {"x": noise(3, 32, seed=2)}, 0.05)

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    fused = op_types(ir.load(tmp_path / "optimized.onnx"))
    assert fused.count("MatMulIntegerToFloat") == 2
    assert "MatMulInteger" not in fused


def test_a_weight_that_a_loop_body_owns_stays_in_it() -> None:
    model = loop()
    body = next(node for node in model.graph if node.op_type == "Loop").attributes["body"]
    inner = body.as_graph()
    value = ir.Value(name="own", const_value=ir.Tensor(noise(32, 32, seed=5), name="own"))
    value.shape, value.dtype = ir.Shape([32, 32]), ir.DataType.FLOAT
    inner.register_initializer(value)
    next(node for node in inner if node.op_type == "MatMul").replace_input_with(1, value)
    after, quantize = apply(QuantizeToInt8Pass(), model)
    inner = next(n for n in after.graph if n.op_type == "Loop").attributes["body"].as_graph()
    assert sorted(inner.initializers) == ["own_q8", "own_scale"]
    assert quantize.coverage.operations_reached == 2
    outputs_agree(after, model, {"x": noise(3, 32, seed=2)}, 0.1)


def test_a_lookup_by_columns_of_scales_is_exact() -> None:
    table, ids = noise(40, 32), np.array([[0, 39, 7]])
    before = build(
        "agraph (int64[B, S] i) => (float[B, S, 32] y) { y = Gather (w, i) }", {"w": table}
    )
    model, _ = apply(QuantizeToInt8Pass(Int8("uint8")), before)
    stored = initializers(model)
    assert stored["w_scale"].shape == (32,)
    numbers = stored["w_q8"].astype(np.float32) - np.float32(128)
    assert_same_bits(run(model, {"i": ids}), [(numbers * stored["w_scale"])[ids]])


def test_names_that_exist_are_not_taken_again() -> None:
    text = """
        agraph (float[M, 32] x) => (float[M, 32] y) {
            w_q8 = Neg (x)
            y_i32 = Abs (w_q8)
            x_q8 = Add (y_i32, w_scale)
            y = MatMul (x_q8, w)
        }
    """
    before = build(text, {"w": noise(32, 32), "w_scale": noise(32)})
    model, _ = apply(QuantizeToInt8Pass(), before)
    assert {"w_scale", "w_q8_2", "w_scale_2"} <= set(initializers(model))
    outputs_agree(model, before, {"x": noise(3, 32, seed=2)}, 0.02)


@pytest.mark.parametrize(
    ("weight", "error"),
    [
        (np.zeros((32, 8), np.float32), 0.0),
        (np.tile(np.arange(8, dtype=np.float32) - 3, (32, 1)), 0.008),
        (noise(32, 1), 0.02),
        (noise(33, 8), 0.02),
        (noise(32, 8, scale=1e36), 0.02),
        (noise(32, 8, scale=1e-36), 0.02),
        (np.full((32, 8), 1e-45, np.float32), 1.0),
    ],
)
def test_special_weights_give_finite_results(weight: np.ndarray, error: float) -> None:
    model, quantize = apply(QuantizeToInt8Pass(), product(weight))
    x = noise(3, len(weight), seed=1, scale=1e-3)
    q, scale, zero = dynamic(x)
    rounded = (q - zero) * np.float64(scale)
    change = run(model, {"x": x})[0] - rounded @ weight
    assert np.isfinite(change).all()
    bound = error * np.linalg.norm(rounded) * np.linalg.norm(weight.astype(np.float64))
    assert np.linalg.norm(change) <= bound * (1 + 1e-6)
    assert quantize.stored[0].relative_error <= error


def test_a_large_channel_costs_the_others_nothing() -> None:
    weight = noise(32, 8)
    weight[:, 3] *= 1e6
    model, quantize = apply(QuantizeToInt8Pass(), product(weight))
    stored = initializers(model)
    restored = stored["w_q8"] * stored["w_scale"]
    for column in range(8):
        change = restored[:, column] - weight[:, column]
        assert np.linalg.norm(change) < 0.02 * np.linalg.norm(weight[:, column])
    _, one_scale = apply(QuantizeToInt8Pass(Int8(per_channel=False)), product(weight))
    assert "one scale" in one_scale.stored[0].detail
    assert "8 scales" in quantize.stored[0].detail


def test_the_error_that_is_stated_is_the_error_of_what_is_stored() -> None:
    weight = noise(32, 8)
    model, quantize = apply(QuantizeToInt8Pass(), product(weight))
    stored = initializers(model)
    change = (stored["w_q8"] * stored["w_scale"]).astype(np.float64) - weight
    (match,) = quantize.stored
    assert match.relative_error == pytest.approx(np.linalg.norm(change) / np.linalg.norm(weight))
    assert match.largest_error == pytest.approx(np.abs(change).max())
    assert match.saved_bytes == 32 * 8 * 4 - 32 * 8 - 8 * 4
    assert match.operations == ("y",)


def test_a_kept_weight_stays_and_says_why() -> None:
    before = build(
        """agraph (float[M, 32] x) => (float[M, 32] y) {
            h = MatMul (x, body)
            y = MatMul (h, classifier)
        }""",
        {"body": noise(32, 32), "classifier": noise(32, 32, seed=1)},
    )
    keep = (Keep("class*", "small and sensitive"),)
    model, quantize = apply(QuantizeToInt8Pass(keep=keep), before)
    assert float_matrices(model) == ["classifier"]
    (skip,) = quantize.coverage.skipped
    assert skip.value == "classifier"
    assert "small and sensitive" in skip.reason
    assert (quantize.coverage.operations_reached, quantize.coverage.operations_total) == (1, 2)
    assert quantize.coverage.bytes_share == 0.5
    assert str(quantize.coverage) == "1 of 2 operations, 50.0% of the bytes of weights"


def test_a_weight_that_would_not_shrink_stays() -> None:
    _, quantize = apply(QuantizeToInt8Pass(), product(noise(1, 8)))
    assert quantize.coverage.skipped[0].reason == "would take 40 bytes in 8 bits, and 32 now"


def test_a_graph_before_opset_13_is_refused_with_what_to_do() -> None:
    model = product(noise(32, 8))
    model.graph.opset_imports[""] = 12
    with pytest.raises(PassError, match=r"opset 13.*opset 12.*convert"):
        QuantizeToInt8Pass().rewrite(model)
