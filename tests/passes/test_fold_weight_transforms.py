from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.fold_weight_transforms import FoldWeightTransformsPass
from tests.passes.helpers import assert_pass_preserves, build, op_types, run, stored_bytes

RNG = np.random.default_rng(7)
W = RNG.standard_normal((8, 6)).astype(np.float32)
X = {"x": RNG.standard_normal((2, 6)).astype(np.float32)}


def test_twelve_transposes_become_one_stored_transpose() -> None:
    uses = "  ".join(f"T{i} = Transpose<perm=[1,0]>(W)  y{i} = MatMul(x, T{i})" for i in range(12))
    outputs = ", ".join(f"float[2,8] y{i}" for i in range(12))
    model = build(f"g (float[2,6] x) => ({outputs}) {{ {uses} }}", {"W": W})
    after = assert_pass_preserves(FoldWeightTransformsPass, model, X)
    (weight,) = after.graph.initializers.values()
    assert op_types(after) == ["MatMul"] * 12
    assert all(node.inputs[1] is weight for node in after.graph)
    assert weight.const_value is not None
    np.testing.assert_array_equal(weight.const_value.numpy(), W.T)


def test_a_table_also_used_untransformed_keeps_one_copy_and_one_transpose() -> None:
    uses = "  ".join(f"T{i} = Transpose(W)  y{i} = MatMul(e, T{i})" for i in range(12))
    outputs = ", ".join(f"float[3,8] y{i}" for i in range(12))
    model = build(f"g (int64[3] i) => ({outputs}) {{ e = Gather(W, i)  {uses} }}", {"W": W})
    after = assert_pass_preserves(FoldWeightTransformsPass, model, {"i": np.array([0, 7, 2])})
    assert op_types(after).count("Transpose") == 1
    assert stored_bytes(after) == W.nbytes
    np.testing.assert_array_equal(after.graph.initializers.get_tensor("W"), W)


def test_different_transforms_of_one_weight_are_not_stored_twice() -> None:
    text = """g (float[2,6] x) => (float[2,8] y, float[48] z, float[2,8] u) {
        s = Constant <value_ints = [-1]> ()
        A = Transpose(W)  y = MatMul(x, A)
        z = Reshape(W, s)
        B = Transpose(W)  u = MatMul(x, B) }"""
    pass_ = FoldWeightTransformsPass()
    model = build(text, {"W": W})
    after = assert_pass_preserves(FoldWeightTransformsPass, model, X)
    assert op_types(after).count("Transpose") == 1 and stored_bytes(after) == W.nbytes + 8
    pass_(model)
    assert [skip.value for skip in pass_.skipped] == ["W"]


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        ("Reshape(W, shape)", (3, 16)),
        ("Flatten<axis = 2>(W)", (48, 1)),
        ("Flatten<axis = -2>(W)", (1, 48)),
        ("Unsqueeze(W, axes)", (1, 8, 1, 6)),
        ("Transpose<perm = [0, 1]>(W)", (8, 6)),
        ("Identity(W)", (8, 6)),
    ],
)
def test_transforms_of_the_shape_are_folded(transform: str, shape: tuple[int, ...]) -> None:
    sizes = ",".join(map(str, shape))
    text = f"g (float x) => (float[{sizes}] y) {{ V = {transform}  y = Add(V, x) }}"
    weights = {"W": W, "shape": np.array([3, -1]), "axes": np.array([0, -2])}
    model = build(text, weights)
    after = assert_pass_preserves(FoldWeightTransformsPass, model, {"x": np.array(1, np.float32)})
    assert op_types(after) == ["Add"]
    assert after.graph.initializers["W"].const_value.shape == shape  # type: ignore[union-attr]


def test_zeros_in_a_reshape_copy_the_dimension_unless_allowzero() -> None:
    text = "g (float x) => (float[8,3,2] y) { V = Reshape(W, s)  y = Add(V, x) }"
    model = build(text, {"W": W, "s": np.array([0, 3, -1])})
    after = assert_pass_preserves(FoldWeightTransformsPass, model, {"x": np.array(1, np.float32)})
    assert after.graph.initializers["W"].shape == (8, 3, 2)


def test_chains_are_folded_one_after_another() -> None:
    text = """g (float[2,8] x) => (float[2,6] y) {
        a = Unsqueeze(W, one)  b = Transpose<perm = [0, 2, 1]>(a)
        c = Squeeze(b)  d = Transpose(c)  y = MatMul(x, d) }"""
    model = build(text, {"W": W, "one": np.array([0])})
    after = assert_pass_preserves(
        FoldWeightTransformsPass, model, {"x": RNG.standard_normal((2, 8)).astype(np.float32)}
    )
    assert op_types(after) == ["MatMul"]


def test_a_transform_that_changes_nothing_goes_whatever_the_other_uses() -> None:
    text = """g (float[2,8] x) => (float[2,6] y, float[2,6] z) {
        V = Reshape(W, s)  y = MatMul(x, V)  z = MatMul(x, W) }"""
    model = build(text, {"W": W, "s": np.array([8, 6])})
    after = assert_pass_preserves(
        FoldWeightTransformsPass, model, {"x": RNG.standard_normal((2, 8)).astype(np.float32)}
    )
    assert op_types(after) == ["MatMul", "MatMul"]


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int32])
def test_a_cast_that_enlarges_stays_but_is_shared(dtype: type) -> None:
    text = """g (float[2,8] x) => (float[2,6] y, float[2,6] z) {
        A = Cast<to = 11>(W)  y = MatMul(x, A)  B = Cast<to = 11>(W)  z = MatMul(x, B) }"""
    weight = (W * 10).astype(dtype)
    model = build(text.replace("float[", "double["), {"W": weight})
    after = assert_pass_preserves(
        FoldWeightTransformsPass, model, {"x": RNG.standard_normal((2, 8))}
    )
    assert op_types(after) == ["Cast", "MatMul", "MatMul"]
    assert stored_bytes(after) == weight.nbytes


HALVES = [1.0, -0.0, 1e-8, 6e-8, 65504.0, 65519.0, 2049.0, 0.1, -1e-4]


@pytest.mark.parametrize(
    ("values", "to"),
    [
        (np.array(HALVES, np.float32), ir.DataType.FLOAT16),
        (np.array([*HALVES, 1.00390625, 1.01171875], np.float32), ir.DataType.BFLOAT16),
        (np.array([0.1, 1e-40, 16777217.0, -0.0]), ir.DataType.FLOAT),
        (np.array([1, 16777217, -5, 2**40 + 1]), ir.DataType.FLOAT),
        (np.array([1, -5, 2**31 - 1]), ir.DataType.INT32),
    ],
)
def test_a_cast_that_shrinks_is_folded_as_onnxruntime_rounds(
    values: np.ndarray, to: ir.DataType
) -> None:
    model = build(
        f"g () => (float[{values.size}] y) {{ C = Cast<to = {int(to)}>(W) y = Cast<to = 1>(C) }}",
        {"W": values},
    )
    after = assert_pass_preserves(FoldWeightTransformsPass, model, {})
    assert after.graph.initializers["W"].dtype == to
    assert stored_bytes(after) < values.nbytes


@pytest.mark.parametrize(
    ("values", "to"),
    [
        (np.array([1e6], np.float32), ir.DataType.FLOAT16),
        (np.array([np.nan], np.float32), ir.DataType.FLOAT16),
        (np.array([0.1]), ir.DataType.FLOAT16),
        (np.array([1.5], np.float32), ir.DataType.INT32),
        (np.array([2**31]), ir.DataType.INT32),
    ],
    ids=["overflow", "nan", "rounded twice", "truncated", "out of range"],
)
def test_a_cast_that_runtimes_may_do_differently_stays(values: np.ndarray, to: ir.DataType) -> None:
    text = f"g () => (float[1] y) {{ C = Cast<to = {int(to)}>(W) y = Cast<to = 1>(C) }}"
    assert_pass_preserves(FoldWeightTransformsPass, build(text, {"W": values}), {}, modified=False)


def test_outputs_inputs_and_computed_arguments_are_left_alone() -> None:
    weight = {"W": W}
    output = "g (float[2,6] x) => (float[6,8] T) { T = Transpose(W) }"
    given = "g (float[2,6] x, float[8,6] W) => (float[2,8] y) { T = Transpose(W) y = MatMul(x, T) }"
    both = """g (float[2,8] x) => (float[6,8] n, float[8,6] W) {
        T = Transpose(W)  n = Relu(T) }"""
    shape = "g (float[8,6] x, int64[2] s) => (float[8,6] y) { V = Reshape(W, s)  y = Add(V, x) }"
    other = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (float[2,6] x) => (float[2,8] y) { T = d.Transpose(W) y = MatMul(x, T) }
        <domain: "d", opset_import: ["" : 20]> Transpose (w) => (v) {
            n = Neg(w) v = Transpose(n) }"""
    computed = "g (float[2,6] x, int64[2] s) => (float[n,m] y) { V = Reshape(W, s)  y = Neg(V) }"
    feeds = {**X, "s": np.array([4, 12])}
    for text, feed in ((output, X), (given, X), (other, X), (computed, feeds)):
        assert_pass_preserves(FoldWeightTransformsPass, build(text, weight), feed, modified=False)
    eight = {"x": RNG.standard_normal((2, 8)).astype(np.float32)}
    model = build(both, weight)
    assert_pass_preserves(FoldWeightTransformsPass, model, eight, modified=False)
    model = build(shape, {**weight, "s": np.array([8, 6])})
    assert_pass_preserves(FoldWeightTransformsPass, model, {"x": W}, modified=False)


def test_the_argument_of_a_transform_is_no_weight() -> None:
    text = "g (float[6] x) => (float[1,6] y) { V = Neg(x)  U = Unsqueeze(V, axes)  y = Neg(U) }"
    model = build(text, {"axes": np.array([0])})
    feeds = {"x": np.ones(6, np.float32)}
    assert_pass_preserves(FoldWeightTransformsPass, model, feeds, modified=False)


def test_generated_weights_are_never_expanded() -> None:
    text = """g (float[100,100] x) => (float[100,100] y) {
        a = Expand(S, shape)  b = Tile(S, shape)  c = ConstantOfShape(shape)
        p = Add(x, a)  q = Add(p, b)  y = Add(q, c) }"""
    model = build(text, {"S": np.ones((1, 1), np.float32), "shape": np.array([100, 100])})
    feeds = {"x": np.zeros((100, 100), np.float32)}
    assert_pass_preserves(FoldWeightTransformsPass, model, feeds, modified=False)


BRANCHES = """g (bool c, float[2,6] x, int64[2] i) => (float[2,8] y, float[2,6] r, float[2,6] z) {
    y = If (c) <
        then_branch = t () => (float[2,8] a) { T = Transpose(W)  a = MatMul(x, T) },
        else_branch = e () => (float[2,8] b) { T = Transpose(W)  n = MatMul(x, T)  b = Neg(n) } >
    z = If (c) <
        then_branch = t2 () => (float[2,6] a2) { T = Abs(x)  a2 = Neg(T) },
        else_branch = e2 () => (float[2,6] b2) { b2 = Abs(x) } >
    r = Gather(W, i) }"""


def test_transposes_in_branches_share_one_in_the_graph_of_the_weight() -> None:
    feeds = [{**X, "i": np.array([1, 2]), "c": np.array(flag)} for flag in (True, False)]
    model = build(BRANCHES, {"W": W})
    for graph in model.graphs():  # graphs beside each other may use one name twice
        graph.node(0).name = "first"
    after = assert_pass_preserves(FoldWeightTransformsPass, model, *feeds)
    counted = ["Transpose", "If", "MatMul", "MatMul", "Neg", "If", "Abs", "Neg", "Abs", "Gather"]
    assert op_types(after) == counted


def test_a_shared_node_moves_before_all_of_its_users() -> None:
    text = """g (float[2,8] x, int64[1] i) => (float[2,6] y, float[2,6] z, float[1,6] r) {
        y = MatMul(x, W)
        z = MatMul(x, W)
        r = Gather(W, i) }"""
    model = build(text, {"W": W})
    for node in list(model.graph)[:2]:
        (weight,) = (v for v in node.inputs if v is not None and v.name == "W")
        back = ir.node("Transpose", [weight], {"perm": [1, 0]})
        again = ir.node("Transpose", [back.outputs[0]], {"perm": [1, 0]})
        model.graph.insert_before(node, [back, again])
        node.replace_input_with(1, again.outputs[0])
    feeds = {"x": RNG.standard_normal((2, 8)).astype(np.float32), "i": np.array([3])}
    after = assert_pass_preserves(FoldWeightTransformsPass, model, feeds)
    assert next(iter(after.graph)).op_type == "Transpose"


def test_four_bit_and_bfloat_weights_are_transposed_exactly() -> None:
    for values, dtype in (
        (RNG.integers(-8, 8, (3, 5)).astype(ml_dtypes.int4), ir.DataType.INT4),
        (W.astype(ml_dtypes.bfloat16), ir.DataType.BFLOAT16),
    ):
        rows, columns = values.shape
        text = f"""<ir_version: 10, opset_import: ["" : 21]>
            g () => (float[{columns},{rows}] y) {{ T = Transpose(W)  y = Cast<to = 1>(T) }}"""
        model = build(text, {"W": ir.Tensor(values, dtype=dtype)})
        FoldWeightTransformsPass()(model)
        assert op_types(model) == ["Cast"]
        np.testing.assert_array_equal(run(model, {})[0], values.T.astype(np.float32))
