from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.quantize_to_int8 import QuantizeToInt8Pass
from exporter.passes.store_as_float16 import StoreAsFloat16Pass
from exporter.passes.weights.find import find_weights
from tests.passes.helpers import build, op_types
from tests.passes.quantize_helpers import apply, float_matrices, initializers, noise, outputs_agree

W = noise(32, 32)

LEFT = {
    "the left factor of a MatMul": "float[32, M] x) => (float[32, M] y) { y = MatMul (w, x)",
    "the left factor of a Gemm": "float[32, M] x) => (float[32, M] y) { y = Gemm (w, x)",
    "alpha is 2": "float[M, 32] x) => (float[M, 32] y) { y = Gemm <alpha = 2.0> (x, w)",
    "beta is 0.5": "float[M, 32] x) => (float[M, 32] y) { y = Gemm <beta = 0.5> (x, w, x)",
    "transposes its left factor": "float[32, M] x) => (float[M, 32] y) "
    "{ y = Gemm <transA = 1> (x, w)",
    "also used by Neg": "float[M, 32] x) => (float[M, 32] y, float[32, 32] z) "
    "{ y = MatMul (x, w) z = Neg (w)",
    "is an output": "float[M, 32] x) => (float[M, 32] y, float[32, 32] w) { y = MatMul (x, w)",
    "its sizes as an output": "float[M, 32] x) => (float[M, 32] y, int64[2] s) "
    "{ y = MatMul (x, w) s = Shape (w)",
    "looked up by columns": "int64[M] x) => (float[32, M] y) { y = Gather <axis = 1> (w, x)",
    "up by columns": "int64[M] x) => (float[M, 32] y) { t = Transpose (w) y = Gather (t, x)",
    "as a bias": "float[32, 32] x) => (float[32, 32] y) { h = MatMul (x, w) y = Gemm (h, x, w)",
    "used by Einsum": 'float[M, 32] x) => (float[M, 32] y) { y = Einsum <equation = "ab,bc->ac"> '
    "(x, w)",
    "a single row": "float[M, 32] x) => (float[M, 32] y) "
    "{ r = Gather (w, first) h = Add (x, r) y = MatMul (h, w)",
}


@pytest.mark.parametrize("reason", LEFT)
def test_a_weight_that_cannot_be_changed_for_all_its_uses_is_named(reason: str) -> None:
    weights = {"w": W} | ({"first": np.array(0)} if "first" in LEFT[reason] else {})
    model = build(f"agraph ({LEFT[reason]} }}", weights)
    after, quantize = apply(QuantizeToInt8Pass(), model)
    (skip,) = quantize.coverage.skipped
    assert skip.value == "w"
    assert reason in skip.reason
    assert quantize.coverage.operations_reached == 0
    assert quantize.coverage.operations_total == 1
    assert op_types(after) == op_types(model)


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        (noise(32), "has 1 dimensions, not 2"),
        (noise(2, 32, 8), "has 3 dimensions, not 2"),
        (W.astype(np.float64), "holds double"),
        (W.astype(np.float16), "holds float16"),
        (np.where(np.eye(32) > 0, np.float32(np.inf), W), "holds 32 infinities or NaN"),
        (np.where(np.eye(32) > 0, np.float32(np.nan), W), "holds 32 infinities or NaN"),
        (noise(32, 0), "is empty"),
    ],
)
def test_a_weight_of_another_kind_is_named(weight: np.ndarray, reason: str) -> None:
    kind = {"float32": "float", "float64": "double", "float16": "float16"}[str(weight.dtype)]
    model = build(
        f"agraph ({kind}[2, 3, 32] x) => ({kind}[A, B] y) {{ h = MatMul (x, w) y = Flatten (h) }}",
        {"w": weight},
    )
    _, quantize = apply(QuantizeToInt8Pass(), model)
    assert reason in quantize.coverage.skipped[0].reason
    assert quantize.coverage.bytes_total == weight.nbytes
    assert quantize.coverage.bytes_reached == 0


def test_a_weight_that_callers_may_override_stays() -> None:
    model = build("agraph (float[M, 32] x) => (float[M, 32] y) { y = MatMul (x, w) }", {"w": W})
    model.graph.inputs.append(model.graph.initializers["w"])
    _, quantize = apply(QuantizeToInt8Pass(), model)
    assert quantize.coverage.skipped[0].reason == "is an input: callers may override it"


STACK = """
    agraph (float[M, 16] x) => (float[M, 16] y) {
        y = Loop (trips, , x) <
            body = layer (int64 i, bool c, float[M, 16] h) => (bool co, float[M, 16] ho) {
                co = Identity (c)
                w = Gather (stack, i)
                b = Gather (biases, i)
                m = MatMul (h, w)
                ho = Add (m, b)
            }
        >
    }
"""


def test_a_stack_of_layers_weights_is_named_and_a_stack_of_biases_is_no_weight() -> None:
    weights = {"stack": noise(3, 16, 16, scale=0.2), "biases": noise(3, 16, seed=1)}
    model = build(STACK, {**weights, "trips": np.array(3)})
    (found,) = find_weights(model)
    assert (found.name, [use.operator for use in found.uses]) == ("stack", ["MatMul"])
    _, quantize = apply(QuantizeToInt8Pass(), model)
    assert "is a stack of layers' weights" in quantize.coverage.skipped[0].reason
    # float16 has no such limit.
    after, halve = apply(StoreAsFloat16Pass(), model)
    assert halve.coverage.operations_reached == 1
    assert initializers(after)["stack_fp16"].dtype == np.float16
    assert float_matrices(after) == ["biases"]
    outputs_agree(after, model, {"x": noise(4, 16, seed=2)}, 1e-3)


def test_weights_of_functions_are_counted_and_left() -> None:
    model = build("agraph (float[M, 32] x, bool c) => (float[M, 32] y) { y = Neg (x) }")
    inner = build(
        """agraph (float[M, 32] x, bool c) => (float[M, 32] y) {
            y = If (c) <
                then_branch = one () => (float[M, 32] t) { t = MatMul (x, w) },
                else_branch = two () => (float[M, 32] e) { e = Neg (x) }
            >
        }""",
        {"w": W},
    ).graph
    weight = inner.initializers.pop("w")
    next(inner.subgraphs().__iter__()).register_initializer(weight)
    function = ir.Function("local", "f", graph=inner, attributes=[])
    model.functions[function.identifier()] = function
    quantize = QuantizeToInt8Pass()
    assert quantize(model).modified is False
    assert quantize.coverage.skipped[0].reason == "belongs to a function"
    assert quantize.coverage.operations_total == 1


def test_products_of_activations_are_no_operations_on_weights() -> None:
    model = build(
        "agraph (float[M, 32] x) => (float[M, M] y) { t = Transpose (x) y = MatMul (x, t) }"
    )
    _, quantize = apply(QuantizeToInt8Pass(), model)
    assert quantize.coverage.operations_total == 0
    assert quantize.coverage.bytes_share == 1.0


@pytest.mark.parametrize(
    ("rows", "width", "is_weight"), [(40, 4, False), (40, 32, True), (41, 4, True)]
)
def test_scales_that_are_looked_up_beside_integers_are_no_weights(
    rows: int, width: int, is_weight: bool
) -> None:
    text = f"""
        agraph (int64[S] i) => (float[S, {width}, N] y) {{
            q = Gather (numbers, i)
            f = Cast <to = 1> (q)
            b = Reshape (f, blocks)
            s = Gather (scales, i)
            u = Unsqueeze (s, last)
            y = Mul (b, u)
        }}
    """
    numbers = np.zeros((40, 32), np.uint8)
    weights = {
        "numbers": numbers,
        "scales": noise(rows, width),
        "blocks": np.array([-1, width, 32 // width], np.int64),
        "last": np.array([2], np.int64),
    }
    model = build(text, weights)
    assert [weight.name for weight in find_weights(model)] == ["scales"] * is_weight


def test_a_table_looked_up_beside_integers_that_it_does_not_scale_is_a_weight() -> None:
    text = """
        agraph (int64[S] i) => (float[S, 36] y) {
            q = Gather (numbers, i)
            f = Cast <to = 1> (q)
            e = Gather (table, i)
            y = Concat <axis = 1> (f, e)
        }
    """
    model = build(text, {"numbers": np.zeros((40, 32), np.uint8), "table": noise(40, 4)})
    assert [weight.name for weight in find_weights(model)] == ["table"]


def test_a_large_matrix_that_no_product_or_lookup_reads_is_told_of() -> None:
    text = """
        agraph (int64[1] end) => (float[S, 64] y) {
            p = Slice (positions, start, end)
            y = MatMul (p, w)
        }
    """
    start = np.array([0], np.int64)
    weights = {"positions": noise(32, 64), "w": noise(64, 64), "start": start}
    quantize = QuantizeToInt8Pass()
    quantize(build(text, weights))
    (left,) = quantize.coverage.missed
    assert (left.value, left.nbytes) == ("positions", 32 * 64 * 4)
    assert left.reason == "no product or lookup: also used by Slice"
    assert quantize.coverage.operations_reached == quantize.coverage.operations_total == 1
    assert quantize.coverage.bytes_share == 64 / 96
    assert not quantize.coverage.is_full


@pytest.mark.parametrize("rows", [12, 3])
def test_small_matrices_and_vectors_of_each_layer_are_not_told_of(rows: int) -> None:
    picked = """
        agraph (int64 layer, float[4, 256] x) => (float[4, 256] y) {
            b = Gather (biases, layer)
            y = Add (x, b)
        }
    """
    added = "agraph (float[3, 256] x) => (float[3, 256] y) { y = Add (x, biases) }"
    model = build(picked if rows == 12 else added, {"biases": noise(rows, 256)})
    assert find_weights(model) == []
