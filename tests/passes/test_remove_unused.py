from __future__ import annotations

import numpy as np

from exporter.passes.remove_unused import RemoveUnusedPass
from tests.passes.helpers import assert_pass_preserves, build, op_types

X = {"x": np.array([1, -2], np.float32)}
ONES = np.ones(2, np.float32)


def test_nodes_and_initializers_without_a_user_go() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Add(x, V)  b = Mul(a, W)  y = Add(x, W) }"
    after = assert_pass_preserves(RemoveUnusedPass, build(text, {"V": ONES, "W": ONES}), X)
    assert op_types(after) == ["Add"] and list(after.graph.initializers) == ["W"]


def test_what_only_a_branch_of_a_removed_node_reads_goes_too() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        a = Neg(x)
        z = If (c) <
            then_branch = t () => (float[2] p) { p = Add(a, W) },
            else_branch = e () => (float[2] q) { q = Identity(W) } >
        y = Abs(x) }"""
    after = assert_pass_preserves(
        RemoveUnusedPass, build(text, {"W": ONES}), {**X, "c": np.array(True)}
    )
    assert op_types(after) == ["Abs"] and not after.graph.initializers


def test_what_a_branch_of_a_used_node_reads_stays_and_its_leftovers_go() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        a = Neg(x)
        y = If (c) <
            then_branch = t () => (float[2] p) <float[2] V = {1, 2}> {
                u = Add(a, V) p = Add(a, W) },
            else_branch = e () => (float[2] q) <float[2] U = {1, 2}> { q = Mul(x, U) } > }"""
    feeds = [{**X, "c": np.array(flag)} for flag in (True, False)]
    after = assert_pass_preserves(RemoveUnusedPass, build(text, {"W": ONES}), *feeds)
    assert op_types(after) == ["Neg", "If", "Add", "Mul"]
    assert list(after.graph.initializers) == ["W"]
    assert [list(inner.initializers) for inner in after.graph.subgraphs()] == [[], ["U"]]


def test_initializers_that_are_inputs_or_outputs_stay() -> None:
    text = "g (float[2] x, float[2] V) => (float[2] y, float[2] W) { y = Neg(x) }"
    model = build(text, {"V": ONES, "W": ONES})
    assert_pass_preserves(RemoveUnusedPass, model, X, modified=False)


def test_loop_bodies_keep_every_output() -> None:
    text = """g (float[2] x) => (float[2] y) {
        n = Constant <value_int = 3> ()
        y, unread = Loop (n, , x, x) <body = b (int64 i, bool c, float[2] s, float[2] r)
            => (bool d, float[2] u, float[2] v) {
                d = Identity(c) u = Neg(s) v = Abs(r) w = Exp(s) }> }"""
    after = assert_pass_preserves(RemoveUnusedPass, build(text), X)
    assert op_types(after) == ["Constant", "Loop", "Identity", "Neg", "Abs"]


def test_leftovers_in_functions_go() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (float[2] x) => (float[2] y) { y = d.f(x) }
        <domain: "d", opset_import: ["" : 20]> f (x) => (y) { u = Abs(x) y = Neg(x) }"""
    after = assert_pass_preserves(RemoveUnusedPass, build(text), X)
    (function,) = after.functions.values()
    assert [node.op_type for node in function] == ["Neg"]
