from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from exporter.errors import PassError
from exporter.passes.quantize_to_int4 import QuantizeToInt4Pass
from exporter.passes.quantize_to_int8 import QuantizeToInt8Pass
from exporter.passes.weights.numerics import unpack_nibbles
from exporter.precision import Int4, Int4Run, Int8, Keep
from tests.passes.helpers import assert_same_bits, build, op_types, run
from tests.passes.quantize_helpers import (
    apply,
    float_matrices,
    initializers,
    noise,
    outputs_agree,
    product,
    tied,
)

RUNS: tuple[Int4Run, ...] = get_args(Int4Run)
SYMMETRIC = (True, False)


def in_opset_21(model: ir.Model) -> ir.Model:
    model.graph.opset_imports[""] = 21
    return model


def by_hand(model: ir.Model, columns: int) -> np.ndarray:
    """The weight that is stored, row by row, from the initializers alone."""
    stored = initializers(model)
    numbers = unpack_nibbles(stored["w_packed"]).astype(np.float32)
    scales = stored["w_scales"].astype(np.float32)
    zero: np.ndarray = np.full(scales.shape, 8, np.float32)
    if "w_zero_points" in stored:
        zero = unpack_nibbles(stored["w_zero_points"])[:, : scales.shape[1]].astype(np.float32)
    rows = (numbers - zero[..., None]) * scales[..., None]
    return rows.reshape(len(rows), -1)[:, :columns]


@pytest.mark.parametrize("symmetric", SYMMETRIC)
@pytest.mark.parametrize(("rows", "columns"), [(64, 6), (96, 6), (50, 6), (96, 1), (50, 1), (7, 6)])
def test_a_product_is_computed_with_the_weight_expanded_by_hand(
    symmetric: bool, rows: int, columns: int
) -> None:
    weight, x = noise(rows, columns), noise(3, rows, seed=1)
    store = Int4(block=32 if rows > 7 else 16, symmetric=symmetric)
    model, quantize = apply(QuantizeToInt4Pass(store), product(weight))
    restored = by_hand(model, rows).T
    assert_same_bits(run(model, {"x": x}), run(product(np.ascontiguousarray(restored)), {"x": x}))
    (match,) = quantize.stored
    change = restored.astype(np.float64) - weight
    assert match.relative_error == pytest.approx(np.linalg.norm(change) / np.linalg.norm(weight))
    assert match.relative_error < 0.13
    assert match.saved_bytes == weight.nbytes - sum(
        array.nbytes for name, array in initializers(model).items() if name.startswith("w_")
    )


@pytest.mark.parametrize("symmetric", SYMMETRIC)
def test_no_number_is_further_from_its_weight_than_half_a_step(symmetric: bool) -> None:
    weight = np.random.default_rng(0).uniform(-1, 1, (64, 8)).astype(np.float32)
    model, _ = apply(QuantizeToInt4Pass(Int4(symmetric=symmetric)), product(weight))
    steps = np.abs(initializers(model)["w_scales"].astype(np.float32))
    change = np.abs(by_hand(model, 64) - weight.T).reshape(8, 2, 32)
    # Symmetric numbers may clip the largest weight: by one step.
    assert (change <= steps[..., None] * (1.01 if symmetric else 0.51) + 1e-3).all()
    assert np.median(change / steps[..., None]) < 0.3


@pytest.mark.parametrize("run_as", RUNS)
@pytest.mark.parametrize("symmetric", SYMMETRIC)
@pytest.mark.parametrize("rows", [64, 50, 80])
def test_every_form_computes_the_same(run_as: Int4Run, symmetric: bool, rows: int) -> None:
    weight, x = noise(rows, 24), noise(3, rows, seed=1)
    before = in_opset_21(product(weight))
    store = Int4(run=run_as, symmetric=symmetric)
    model, _ = apply(QuantizeToInt4Pass(store), before)
    plain, _ = apply(QuantizeToInt4Pass(Int4(symmetric=symmetric)), before)
    # onnxruntime, when it optimizes, may quantize the activations behind DequantizeLinear.
    exact = {"float": 1e-6, "int8": 0.02, "matmul_nbits": 1e-5, "dequantize": 0.02}[run_as]
    outputs_agree(model, plain, {"x": x}, exact)


OPERATORS_OF_FORMS = {
    "float": {"BitShift", "Cast", "Sub", "Mul", "Unsqueeze", "Reshape", "Transpose", "MatMul"},
    "int8": {"Div", "Round", "DynamicQuantizeLinear", "MatMulInteger"},
    "matmul_nbits": {"MatMulNBits"},
    "dequantize": {"DequantizeLinear", "MatMul"},
}


@pytest.mark.parametrize("run_as", RUNS)
def test_a_form_is_made_of_the_operators_it_names(run_as: Int4Run) -> None:
    before = in_opset_21(product(noise(64, 24)))
    model, quantize = apply(QuantizeToInt4Pass(Int4(run=run_as)), before)
    assert OPERATORS_OF_FORMS[run_as] <= set(op_types(model))
    assert {node.domain for node in model.graph} - {""} == (
        {"com.microsoft"} if run_as == "matmul_nbits" else set()
    )
    assert f"products run as {run_as}," in quantize.stored[0].detail


@pytest.mark.parametrize(("run_as", "left"), [("float", "MatMul"), ("int8", "MatMulInteger")])
def test_the_runtime_expands_at_load(run_as: Int4Run, left: str, tmp_path) -> None:
    model, _ = apply(QuantizeToInt4Pass(Int4(run=run_as)), product(noise(50, 24)))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    operators = op_types(ir.load(tmp_path / "optimized.onnx"))
    assert left in operators
    assert not {"BitShift", "Reshape", "Transpose", "Div", "Round"} & set(operators)


def test_eight_bits_made_of_four_are_those_of_the_expanded_weight() -> None:
    weight, x = noise(64, 24), noise(3, 64, seed=1)
    model, quantize = apply(QuantizeToInt4Pass(Int4(run="int8")), product(weight))
    expanded = np.ascontiguousarray(by_hand(model, 64).T)
    direct, _ = apply(QuantizeToInt8Pass(Int8("int8")), product(expanded))
    assert_same_bits(run(model, {"x": x}), run(direct, {"x": x}))
    np.testing.assert_array_equal(initializers(model)["w_step"], initializers(direct)["w_scale"])
    assert 0.05 < quantize.stored[0].relative_error < 0.1


@pytest.mark.parametrize("run_as", RUNS)
@pytest.mark.parametrize("symmetric", SYMMETRIC)
def test_a_tied_table_is_packed_once_for_lookup_and_head(run_as: Int4Run, symmetric: bool) -> None:
    before = in_opset_21(tied(noise(40, 96)))
    store = Int4(run=run_as, symmetric=symmetric)
    model, quantize = apply(QuantizeToInt4Pass(store), before)
    stored = initializers(model)
    assert stored["w_packed"].shape == (40, 3, 16)
    assert float_matrices(model) == []
    assert quantize.coverage.operations_reached == 2
    ids = np.array([[0, 39, 7], [5, 5, 1]])
    rows = by_hand(model, 96)
    expected = rows[ids] @ rows.T
    actual = run(model, {"ids": ids})[0]
    assert np.linalg.norm(actual - expected) < 0.02 * np.linalg.norm(expected)
    said = "products run as float (dequantize does not fit its uses)"
    assert (said in quantize.stored[0].detail) == (run_as == "dequantize")


@pytest.mark.parametrize("symmetric", SYMMETRIC)
@pytest.mark.parametrize("scales", ["float16", "float32"])
@pytest.mark.parametrize("width", [32, 50, 80])
def test_rows_that_are_looked_up_are_expanded_exactly(
    symmetric: bool, scales: Literal["float16", "float32"], width: int
) -> None:
    text = f"agraph (int64[B, S] i) => (float[B, S, {width}] y) {{ y = Gather (w, i) }}"
    before = build(text, {"w": noise(40, width)})
    store = Int4(symmetric=symmetric, scales=scales)
    model, _ = apply(QuantizeToInt4Pass(store), before)
    ids = np.array([[0, 39, 7], [5, 5, 1]])
    assert_same_bits(run(model, {"i": ids}), [by_hand(model, width)[ids]])


def test_a_table_that_is_also_a_plain_product_runs_as_float_where_blocks_do_not_fit() -> None:
    text = """
        agraph (int64[S] i, float[S, 40] x) => (float[S, 64] e, float[S, 64] y) {
            e = Gather (w, i)
            y = MatMul (x, w)
        }
    """
    before = build(text, {"w": noise(40, 64)})
    feeds = {"i": np.array([3, 39]), "x": noise(2, 40, seed=1)}
    plain, _ = apply(QuantizeToInt4Pass(), before)
    for run_as in ("matmul_nbits", "int8"):
        model, quantize = apply(QuantizeToInt4Pass(Int4(run=run_as)), before)
        assert float_matrices(model) == []
        outputs_agree(model, plain, feeds, 0.02)
        assert ("does not fit" in quantize.stored[0].detail) == (run_as == "matmul_nbits")


@pytest.mark.parametrize("run_as", RUNS)
def test_weights_of_loop_bodies_and_biases_of_gemm(run_as: Int4Run) -> None:
    text = """
        agraph (float[M, 32] x) => (float[M, 32] y) {
            y = Loop (trips, , x) <
                body = layer (int64 i, bool c, float[M, 32] h) => (bool co, float[M, 32] ho) {
                    co = Identity (c)
                    a = Gemm <transB = 1> (h, w, b)
                    m = MatMul (a, v)
                    ho = Tanh (m)
                }
            >
        }
    """
    weights = {"w": noise(32, 32, scale=0.2), "v": noise(32, 32, seed=3, scale=0.2)}
    before = in_opset_21(build(text, {**weights, "b": noise(32, seed=4), "trips": np.array(3)}))
    model, quantize = apply(QuantizeToInt4Pass(Int4(run=run_as)), before)
    plain, _ = apply(QuantizeToInt4Pass(), before)
    assert quantize.coverage.operations_reached == 2
    assert float_matrices(model) == []
    outputs_agree(model, plain, {"x": noise(3, 32, seed=5)}, 0.05)
    body = next(n for n in model.graph if n.op_type == "Loop").attributes["body"].as_graph()
    assert not {"BitShift", "Div", "Transpose"} & {node.op_type for node in body}


@pytest.mark.parametrize("symmetric", SYMMETRIC)
@pytest.mark.parametrize(
    ("weight", "error"),
    [
        (np.zeros((32, 8), np.float32), 0.0),
        (np.tile(np.arange(8, dtype=np.float32) - 3, (32, 1)), 1e-3),
        (noise(32, 8, scale=1e6), 0.12),
        (noise(32, 8, scale=1e-9), 0.12),
        (noise(32, 8, scale=1e37), 0.12),
        (np.where(np.arange(64)[:, None] < 32, noise(64, 8), np.float32(0)), 0.12),
    ],
)
def test_special_weights_are_finite_and_close(
    weight: np.ndarray, error: float, symmetric: bool
) -> None:
    model, quantize = apply(QuantizeToInt4Pass(Int4(symmetric=symmetric)), product(weight))
    assert np.isfinite(by_hand(model, len(weight))).all()
    assert quantize.stored[0].relative_error <= error


def test_scales_that_float16_cannot_hold_are_float32_and_others_are_not() -> None:
    types = {
        scale: initializers(apply(QuantizeToInt4Pass(), product(noise(32, 8, scale=scale)))[0])[
            "w_scales"
        ].dtype.name
        for scale in (1e-9, 1.0, 1e6)
    }
    assert types == {1e-9: "float32", 1.0: "float16", 1e6: "float32"}
    asked, _ = apply(QuantizeToInt4Pass(Int4(scales="float32")), product(noise(32, 8)))
    assert initializers(asked)["w_scales"].dtype == np.float32


def test_smaller_blocks_and_zero_points_are_closer() -> None:
    weight = noise(256, 8) + np.float32(0.5)

    def error(**options: object) -> float:
        quantize = QuantizeToInt4Pass(Int4(**options))  # type: ignore[arg-type]
        return apply(quantize, product(weight))[1].stored[0].relative_error

    assert error(block=16) < error(block=32) < error(block=128)
    assert error(symmetric=False) < error(symmetric=True)


def test_a_kept_weight_stays() -> None:
    keep = (Keep("w", "asked for"),)
    model, quantize = apply(QuantizeToInt4Pass(keep=keep), product(noise(32, 8)))
    assert float_matrices(model) == ["w"]
    assert quantize.coverage.operations_reached == 0


def test_a_weight_that_would_not_shrink_stays() -> None:
    _, quantize = apply(QuantizeToInt4Pass(), product(noise(2, 3)))
    assert quantize.coverage.skipped[0].reason == "would take 54 bytes in 4 bits, and 24 now"


def test_dequantize_before_opset_21_is_refused_with_what_to_do() -> None:
    with pytest.raises(PassError, match=r"needs opset 21.*opset 20.*--opset 21"):
        QuantizeToInt4Pass(Int4(run="dequantize")).rewrite(product(noise(32, 8)))
