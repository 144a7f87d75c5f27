from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.store_as_float16 import StoreAsFloat16Pass
from exporter.precision import Keep
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


def test_a_product_computes_in_float32_with_the_rounded_weight() -> None:
    weight, x = noise(32, 8), noise(3, 32, seed=1)
    model, halve = apply(StoreAsFloat16Pass(), product(weight))
    assert op_types(model) == ["Cast", "MatMul"]
    rounded = weight.astype(np.float16)
    assert_same_bits([initializers(model)["w_fp16"]], [rounded])
    expected = run(product(rounded.astype(np.float32)), {"x": x})
    assert_same_bits(run(model, {"x": x}), expected)
    (match,) = halve.stored
    assert match.saved_bytes == 32 * 8 * 2
    assert match.notice is None
    assert 1e-5 < match.relative_error < 5e-4


def test_rows_are_expanded_as_they_are_looked_up_and_a_head_reads_the_same_table() -> None:
    model, halve = apply(StoreAsFloat16Pass(), tied(noise(40, 32)))
    assert list(initializers(model)) == ["w_fp16"]
    assert op_types(model).count("Cast") == 2
    gather = next(node for node in model.graph if node.op_type == "Gather")
    assert gather.inputs[0] is model.graph.initializers["w_fp16"]
    assert halve.coverage.operations_reached == 2
    outputs_agree(model, tied(noise(40, 32)), {"ids": np.array([[0, 39]])}, 1e-3)


def test_masks_and_other_constants_of_the_computation_stay() -> None:
    lowest = np.finfo(np.float32).min
    mask = np.triu(np.full((32, 32), lowest, np.float32), 1)
    text = """
        agraph (float[32, 32] x) => (float[32, 32] y) {
            s = MatMul (x, w)
            m = Add (s, mask)
            p = Softmax <axis = -1> (m)
            y = Mul (p, scale)
        }
    """
    before = build(text, {"w": noise(32, 32), "mask": mask, "scale": noise(32)})
    model, halve = apply(StoreAsFloat16Pass(), before)
    stored = initializers(model)
    assert_same_bits([stored["mask"], stored["scale"]], [mask, noise(32)])
    assert halve.coverage.operations_total == 1
    outputs_agree(model, before, {"x": noise(32, 32, seed=1)}, 1e-2)


@pytest.mark.parametrize("scale", [1e6, 1e-9, 1e15, 1e-18])
def test_weights_beyond_float16_are_rescaled_exactly_and_named(scale: float) -> None:
    weight, x = noise(32, 8, scale=scale), noise(3, 32, seed=1)
    model, halve = apply(StoreAsFloat16Pass(), product(weight))
    (match,) = halve.stored
    assert match.notice is not None
    assert match.notice.startswith("divided by 2**")
    assert match.relative_error < 5e-4
    outputs_agree(model, product(weight), {"x": x}, 1e-3)
    table = build("agraph (int64[S] i) => (float[S, 8] y) { y = Gather (w, i) }", {"w": weight})
    looked_up, _ = apply(StoreAsFloat16Pass(), table)
    outputs_agree(looked_up, table, {"i": np.array([3, 31])}, 1e-3)


def test_numbers_that_become_zero_are_counted() -> None:
    weight = noise(32, 8)
    weight[:16] = 1e-9
    _, halve = apply(StoreAsFloat16Pass(), product(weight))
    assert halve.stored[0].notice == "128 of 256 numbers are too small and became zero"


@pytest.mark.parametrize("weight", [np.zeros((32, 8), np.float32), noise(32, 8) * 65504 / 10])
def test_weights_within_float16_are_stored_as_they_are(weight: np.ndarray) -> None:
    weight = weight.astype(np.float32)
    model, halve = apply(StoreAsFloat16Pass(), product(weight))
    assert halve.stored[0].notice is None
    assert "Mul" not in op_types(model)


def test_left_factors_and_other_uses_read_the_expanded_weight() -> None:
    text = """
        agraph (float[32, M] x) => (float[32, M] y, float[32, 32] z) {
            h = MatMul (w, x)
            t = Transpose (w)
            y = MatMul (t, h)
            z = Neg (w)
        }
    """
    before = build(text, {"w": noise(32, 32)})
    model, halve = apply(StoreAsFloat16Pass(), before)
    assert op_types(model).count("Cast") == 1
    assert halve.coverage.operations_reached == 2
    outputs_agree(model, before, {"x": noise(32, 3, seed=1)}, 1e-3)


def test_a_lookup_only_table_whose_size_is_asked_for_is_never_expanded() -> None:
    text = """
        agraph (int64[S] i) => (float[S, 32] y, int64[1] n) {
            y = Gather (w, i)
            s = Shape <start = 0, end = 1> (w)
            n = Neg (s)
        }
    """
    before = build(text, {"w": noise(40, 32)})
    model, _ = apply(StoreAsFloat16Pass(), before)
    assert sorted(op_types(model)) == ["Cast", "Gather", "Neg"]
    assert run(model, {"i": np.array([1])})[1].tolist() == [-40]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_weights_that_are_not_finite_stay_with_the_reason(value: float) -> None:
    weight = noise(32, 8)
    weight[3, 5] = value
    model, halve = apply(StoreAsFloat16Pass(), product(weight))
    assert halve.coverage.skipped[0].reason == "holds 1 infinities or NaN"
    assert float_matrices(model) == ["w"]


def test_kept_weights_and_weights_of_other_types_stay() -> None:
    _, kept = apply(StoreAsFloat16Pass(keep=(Keep("w"),)), product(noise(32, 8)))
    assert kept.coverage.skipped[0].reason == "kept: w matches 'w' (asked for)"
    text = "agraph (double[M, 32] x) => (double[M, 8] y) { y = MatMul (x, w) }"
    model, halve = apply(StoreAsFloat16Pass(), build(text, {"w": noise(32, 8).astype(np.float64)}))
    assert halve.coverage.skipped[0].reason == "holds double"
    assert model.graph.initializers["w"].dtype == ir.DataType.DOUBLE
