from __future__ import annotations

import numpy as np
import pytest

from exporter.passes.merge_equal_nodes import MergeEqualNodesPass
from tests.passes.helpers import assert_pass_preserves, build, op_types

X = {"x": np.array([[1, -2], [3, 4]], np.float32)}
ONE_OUTPUT = "g (float[2,2] x) => (float[2,2] y) {{ {} }}"


def test_equal_nodes_become_one_and_so_do_nodes_that_thereby_become_equal() -> None:
    text = ONE_OUTPUT.format("a = Neg(x) b = Neg(x) c = Abs(a) d = Abs(b) y = Add(c, d)")
    after = assert_pass_preserves(MergeEqualNodesPass, build(text), X)
    assert op_types(after) == ["Neg", "Abs", "Add"]
    add = after.graph.node(2)
    assert add.inputs[0] is add.inputs[1] is after.graph.node(1).outputs[0]


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Neg(x) b = Abs(x) y = Add(a, b)",
        "n = Neg(x) a = Sub(x, n) b = Sub(n, x) y = Add(a, b)",
        "a = LeakyRelu<alpha = 0.5>(x) b = LeakyRelu<alpha = 0.25>(x) y = Add(a, b)",
        "a = Elu<alpha = 0.0>(x) b = Elu<alpha = -0.0>(x) y = Add(a, b)",
        "a = Softmax<axis = 0>(x) b = Softmax<axis = 1>(x) y = Add(a, b)",
        "a = Clip(x, , W) b = Clip(x, W) y = Add(a, b)",
        "a = Constant<value_floats = [0.0]>() b = Constant<value_floats = [-0.0]>() "
        "c = Div(x, a) d = Div(x, b) y = Max(c, d)",
        "a = Constant<value = float {0.0}>() b = Constant<value = float {-0.0}>() "
        "c = Div(x, a) d = Div(x, b) y = Max(c, d)",
    ],
)
def test_look_alikes_stay(nodes: str) -> None:
    model = build(ONE_OUTPUT.format(nodes), {"W": np.array(0.5, np.float32)})
    assert_pass_preserves(MergeEqualNodesPass, model, X, modified=False)


def test_random_numbers_are_drawn_as_often_as_before() -> None:
    text = ONE_OUTPUT.format("a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)")
    assert_pass_preserves(MergeEqualNodesPass, build(text), modified=False)


def test_functions_that_may_draw_numbers_are_called_as_often_as_before() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (float[2,2] x) => (float[2,2] y) { a = d.f(x) b = d.f(x) y = Sub(a, b) }
        <domain: "d", opset_import: ["" : 20]> f (x) => (y) { y = RandomNormalLike(x) }"""
    assert_pass_preserves(MergeEqualNodesPass, build(text), modified=False)


def test_outputs_keep_their_nodes_and_serve_later_ones() -> None:
    text = """g (float[2,2] x) => (float[2,2] a, float[2,2] c, float[2,2] y) {
        a = Neg(x)  b = Neg(x)  c = Neg(x)  y = Abs(b) }"""
    after = assert_pass_preserves(MergeEqualNodesPass, build(text), X)
    assert op_types(after) == ["Neg", "Neg", "Abs"]
    assert after.graph.node(2).inputs[0] is after.graph.outputs[0]


def test_an_output_keeps_its_type_though_an_untyped_equal_comes_first() -> None:
    text = ONE_OUTPUT.format("a = Neg(x) b = Abs(a) y = Neg(x)")
    assert_pass_preserves(MergeEqualNodesPass, build(text), X, modified=False)


def test_a_node_that_omits_an_output_does_not_stand_for_one_that_gives_it() -> None:
    text = """g (float[2,2] x) => (float[2,2] y) {
        v = Unique(x)  w, f = Unique(x)
        s = ReduceSum(v)  g = Cast<to = 1>(f)  t = ReduceSum(g)  u = Add(s, t)  y = Add(x, u) }"""
    assert_pass_preserves(MergeEqualNodesPass, build(text), X, modified=False)


def test_nodes_in_branches_and_functions_are_merged_within_each() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (bool c, float[2,2] x) => (float[2,2] y) {
            n = Neg(x)
            z = If (c) <
                then_branch = t () => (float[2,2] p) { a = Neg(x) b = Neg(x) p = Add(a, b) },
                else_branch = e () => (float[2,2] q) { q = Add(n, x) } >
            y = d.f(z) }
        <domain: "d", opset_import: ["" : 20]> f (x) => (y) {
            a = Abs(x) b = Abs(x) y = Add(a, b) }"""
    feeds = [{**X, "c": np.array(flag)} for flag in (True, False)]
    after = assert_pass_preserves(MergeEqualNodesPass, build(text), *feeds)
    assert op_types(after) == ["Neg", "If", "Neg", "Add", "Add", "f"]
    (function,) = after.functions.values()
    assert [node.op_type for node in function] == ["Abs", "Add"]


def test_nodes_that_hold_graphs_stay() -> None:
    branch = """If (c) <
        then_branch = t{0} () => (float[2,2] p{0}) {{ p{0} = Neg(x) }},
        else_branch = e{0} () => (float[2,2] q{0}) {{ q{0} = Abs(x) }} >"""
    nodes = f"a = {branch.format(0)} b = {branch.format(1)} y = Add(a, b)"
    text = ONE_OUTPUT.format(nodes).replace("(float[2,2] x)", "(bool c, float[2,2] x)")
    feeds = [{**X, "c": np.array(flag)} for flag in (True, False)]
    assert_pass_preserves(MergeEqualNodesPass, build(text), *feeds, modified=False)
