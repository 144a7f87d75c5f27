from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from exporter.passes.use_gemm_for_tied_tables import UseGemmForTiedTablesPass
from tests.passes import helpers
from tests.passes.helpers import build, op_types

# onnxruntime rounds products with and without transB alike only in its default settings.
assert_pass_preserves = partial(helpers.assert_pass_preserves, as_written=False)

RNG = np.random.default_rng(13)
W = RNG.standard_normal((20, 8)).astype(np.float32)
TIED = """g (int64[%s] i) => (float[%s,20] y) {
    e = Gather(W, i)  T = Transpose<perm = [1, 0]>(W)  y = MatMul(e, T) }"""


@pytest.mark.parametrize(
    ("dims", "shape"),
    [("b,s", (2, 3)), ("2,3", (2, 3)), ("a,b,c", (2, 3, 1)), ("n", (5,)), ("b,s", (1, 1))],
)
def test_logits_come_from_the_table_itself_at_any_rank(dims: str, shape: tuple[int, ...]) -> None:
    model = build(TIED % (dims, dims), {"W": W})
    feeds = {"i": RNG.integers(0, 20, shape)}
    after = assert_pass_preserves(UseGemmForTiedTablesPass, model, feeds)
    assert "Transpose" not in op_types(after) and "MatMul" not in op_types(after)
    (gemm,) = (node for node in after.graph if node.op_type == "Gemm")
    assert gemm.inputs[1] is after.graph.initializers["W"]


def test_two_dimensions_need_the_gemm_alone() -> None:
    text = """g (int64[n] i, float[n,8] x) => (float[n,8] e, float[n,20] y) {
        e = Gather(W, i)  T = Transpose(W)  y = MatMul(x, T) }"""
    feeds = {"i": np.array([1, 2]), "x": RNG.standard_normal((2, 8)).astype(np.float32)}
    after = assert_pass_preserves(UseGemmForTiedTablesPass, build(text, {"W": W}), feeds)
    assert op_types(after) == ["Gather", "Gemm"]


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,8] x) => (float[2,20] y) { T = Transpose(W)  y = MatMul(x, T) }",
        """g (float[2,20] x, int64[2] i) => (float[2,8] y, float[2,8] e) {
            T = Transpose<perm = [0, 1]>(W)  y = MatMul(x, T)  e = Gather(W, i) }""",
        """g (float[2,8] x, int64[2] i, float[20,8] W) => (float[2,20] y, float[2,8] e) {
            T = Transpose(W)  y = MatMul(x, T)  e = Gather(W, i) }""",
        """g (float[2,8] x, int64[2] i) => (float[8,2] y, float[2,8] e) {
            T = Transpose(W)  z = Transpose(x)  n = Neg(W)  y = MatMul(T, U)  e = Gather(W, i) }""",
    ],
    ids=["not tied", "not transposed", "overridable", "left factor"],
)
def test_look_alikes_stay(text: str) -> None:
    columns = 20 if "perm" in text else 8
    feeds = {"x": RNG.standard_normal((2, columns)).astype(np.float32), "i": np.array([1, 2])}
    model = build(text, {"W": W, "U": np.ones((20, 2), np.float32)})
    feeds = {v.name: feeds[v.name] for v in model.graph.inputs if v.name in feeds}
    assert_pass_preserves(UseGemmForTiedTablesPass, model, feeds, modified=False)


def test_before_opset_15_it_stays() -> None:
    text = '<ir_version: 8, opset_import: ["" : 14]>\n' + TIED % ("b,s", "b,s")
    pass_ = UseGemmForTiedTablesPass()
    assert pass_(build(text, {"W": W})).modified is False
    assert [skip.reason for skip in pass_.skipped] == ["opset 14 is below 15"]


def test_a_gemm_of_the_transposed_table_gets_its_flag_flipped() -> None:
    text = """g (int64[n] i, float[n,8] x) => (float[n,8] e, float[n,20] y, float[8,n] z,
        float[n,8] w) {
        e = Gather(W, i)  T = Transpose(W)
        y = Gemm(x, T)  z = Gemm <transB = 1> (T, y)  w = Gemm <transB = 1> (y, T) }"""
    feeds = {"i": np.array([1, 2]), "x": RNG.standard_normal((2, 8)).astype(np.float32)}
    after = assert_pass_preserves(UseGemmForTiedTablesPass, build(text, {"W": W}), feeds)
    flags = [
        (node.attributes.get_int("transA", 0), node.attributes.get_int("transB", 0))
        for node in after.graph
        if node.op_type == "Gemm"
    ]
    assert flags == [(0, 1), (1, 1), (0, 0)]


def test_a_transpose_with_other_users_stays() -> None:
    text = """g (int64[2] i) => (float[2,20] y, float[8,20] n) {
        e = Gather(W, i)  T = Transpose(W)  y = MatMul(e, T)  n = Neg(T) }"""
    model = build(text, {"W": W})
    after = assert_pass_preserves(UseGemmForTiedTablesPass, model, {"i": np.array([1, 2])})
    assert "Transpose" in op_types(after) and "MatMul" not in op_types(after)


def test_in_a_loop_new_names_differ_from_all_names_around_it() -> None:
    # onnx_ir names a value val_0, val_1, … by looking at one graph alone.
    chain = "  ".join(f"val_{number + 1} = Neg(val_{number})" for number in range(4))
    text = f"""g (int64[b,s] i) => (float[b,s,8] y, float[b,s,8] val_4) {{
        val_0 = Gather(W, i)  {chain}
        y = Loop(n, , val_4) <body = layer (int64 k, bool go, float[b,s,8] x)
            => (bool go_on, float[b,s,8] sum) {{
                go_on = Identity(go)
                T = Transpose(W)  up = MatMul(x, T)  active = Relu(up)  down = MatMul(active, W)
                lower = Add(down, val_3)  shifted = Add(lower, val_5)  all = Add(shifted, val_9)
                scaled = Mul(all, val_7)  sum = Add(scaled, x) }}> }}"""
    offsets = RNG.standard_normal((5, 8)).astype(np.float32)
    weights = {"W": W, "n": np.array(3), **{f"val_{5 + n}": v for n, v in enumerate(offsets)}}
    feeds = {"i": RNG.integers(0, 20, (2, 3))}
    after = assert_pass_preserves(UseGemmForTiedTablesPass, build(text, weights), feeds)
    (loop,) = (node for node in after.graph if node.op_type == "Loop")
    body = loop.attributes["body"].as_graph()
    assert [node.op_type for node in body][1:6] == ["Flatten", "Gemm", "Shape", "Shape", "Concat"]
    around = {value.name for node in after.graph for value in node.outputs}
    around |= set(after.graph.initializers)
    inside = [value.name for node in body for value in node.outputs]
    assert len({*around, *inside}) == len(around) + len(inside)
    new = [node.name for node in body][1:7]
    assert all(new) and len(set(new)) == len(new)


def test_new_names_come_from_the_output_and_the_output_keeps_its_own() -> None:
    text = """g (int64[n] i, float[n,8] x) => (float[n,8] e, float[n,20] y, float[n,8] y_product) {
        e = Gather(W, i)  T = Transpose(W)  y = MatMul(x, T)  y_product = Neg(x) }"""
    feeds = {"i": np.array([1, 2]), "x": RNG.standard_normal((2, 8)).astype(np.float32)}
    after = assert_pass_preserves(UseGemmForTiedTablesPass, build(text, {"W": W}), feeds)
    (gemm,) = (node for node in after.graph if node.op_type == "Gemm")
    assert (gemm.name, gemm.outputs[0].name) == ("Gemm_y_product_2", "y")
