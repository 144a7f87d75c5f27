"""Loops written out: by this project, by hand, and such as cannot be."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir
import pytest

from exporter.accounting import count_graph
from exporter.passes.unroll_loops import UnrollLoopsPass
from tests.passes.helpers import assert_pass_preserves, build, op_types, stored_bytes
from tests.passes.roll_graphs import FEEDS, LAYER, attempt, chain, matrix, node_count, vector

SCALED = "h{i} = MatMul(x{p}, W)  s{i} = Mul(h{i}, c{i})  x{i} = Add(s{i}, x{p})"

LOOP = """main (float[B,4] x0) => (float[B,4] y{more}) {{
    {before}
    y{scan} = Loop({count}, {condition}, x0) <body = b (int64 i, bool c, float[B,4] x)
        => (bool c_out, float[B,4] x_out{scan_out}) {{
        c_out = {condition_out}
        h = MatMul(x, W)
        {inside}
    }}>
    {after}
}}"""


def by_hand(constants: Iterable[tuple[str, np.ndarray]] = (), **parts: str) -> ir.Model:
    values = {
        "more": "",
        "before": "",
        "scan": "",
        "count": "n",
        "condition": "",
        "scan_out": "",
        "condition_out": "Identity(c)",
        "inside": "x_out = Relu(h)",
        "after": "",
    }
    weights = {
        "W": matrix(0),
        "n": np.array(3),
        "yes": np.array(True),
        "zero": np.array(0),
        "two": np.array(2),
        "stack": matrix(1),
    } | dict(constants)
    text = LOOP.format(**values | parts)
    used = {name: array for name, array in weights.items() if re.search(rf"\b{name}\b", text)}
    return build(text, used)


def unrolled(model: ir.Model) -> ir.Model:
    return assert_pass_preserves(UnrollLoopsPass, model, *FEEDS, may_grow=True)


def reasons(model: ir.Model) -> list[str]:
    unroll = UnrollLoopsPass()
    assert unroll(model).modified is False
    return [skip.reason for skip in unroll.skipped]


@pytest.mark.parametrize(
    "layers",
    [
        chain([LAYER] * 3),
        chain([LAYER] * 4, outputs="float[B,4] x1, float[B,4] g3, float[B,4] x4"),
        chain([SCALED] * 4, {"W": matrix(0)} | {f"c{i}": vector(i) for i in range(1, 5)}),
        chain([SCALED] * 4, {"W": matrix(0)} | {f"c{i}": vector(i % 2) for i in range(1, 5)}),
        chain([LAYER] * 3 + [LAYER.replace("W", "V")] * 3, {"W": matrix(0), "V": matrix(1)}),
    ],
    ids=["plain", "scanned", "stacked", "stacked with a table", "two loops"],
)
def test_unrolling_undoes_rolling(layers: ir.Model) -> None:
    rolled, runs, _ = attempt(layers, limit=64)
    assert runs
    written_out = unrolled(rolled)
    assert sorted(op_types(written_out)) == sorted(op_types(layers))
    assert stored_bytes(written_out) == count_graph(layers).unique_bytes
    again, _, _ = attempt(written_out, limit=64)
    assert node_count(again) == node_count(rolled)
    assert stored_bytes(again) == stored_bytes(rolled)


def test_what_was_unrolled_is_reported() -> None:
    rolled, _, _ = attempt(chain([LAYER] * 3))
    unroll = UnrollLoopsPass()
    unroll(rolled)
    (match,) = unroll.matches
    assert match.value == "rolled_blocks"
    assert match.detail == "3 iterations of 4 nodes written out"


def test_the_first_copy_keeps_the_names_of_the_body() -> None:
    names = [node.outputs[0].name for node in unrolled(by_hand()).graph]
    assert names == ["h", "x_out", "h_1", "x_out_1", "h_2", "y"]


def test_the_iteration_number_becomes_a_constant() -> None:
    inside = "f = Cast<to = 1>(i)  x_out = Add(h, f)"
    model = unrolled(by_hand(inside=inside))
    numbers = [
        node.inputs[0].const_value.numpy().item()  # type: ignore[union-attr]
        for node in model.graph
        if node.op_type == "Cast"
    ]
    assert numbers == [0, 1, 2]


def test_rows_of_a_stack_become_initializers() -> None:
    model = unrolled(by_hand(inside="row = Gather(stack, i)  x_out = Add(h, row)"))
    assert "Gather" not in op_types(model)
    rows = [model.graph.initializers[f"stack_{i}"].const_value for i in range(3)]
    assert [row.numpy().tolist() for row in rows] == matrix(1)[:3].tolist()  # type: ignore[union-attr]
    assert "stack" not in model.graph.initializers


def test_a_stack_that_something_outside_needs_stays_whole() -> None:
    inside = "row = Gather(stack, i)  x_out = Add(h, row)"
    result = unrolled(by_hand(inside=inside, after="z = Neg(stack)", more=", float[4,4] z"))
    assert op_types(result).count("Gather") == 3
    assert set(result.graph.initializers) == {"W", "stack", "i_0", "i_1", "i_2"}


@pytest.mark.parametrize(
    ("table", "height", "gathers"),
    [
        ([0, 1, 1], 2, 0),  # the rows of a stack of two
        ([0, 1, 1], 4, 3),  # data: most rows of the larger table would be lost
        ([0, 1, 2], 3, 3),  # data: all different, as the steps of a step embedding
        ([0, 2, 2], 3, 3),  # data: row 1 would be lost
    ],
)
def test_a_table_of_rows_is_told_from_numbers_that_are_data(
    table: list[int], height: int, gathers: int
) -> None:
    inside = "t = Gather(table, i)  row = Gather(stack, t)  x_out = Add(h, row)"
    rows = {"table": np.array(table), "stack": matrix(1)[:height]}
    result = unrolled(by_hand(rows.items(), inside=inside))
    assert op_types(result).count("Gather") == gathers


def test_a_scan_output_as_a_whole_is_concatenated() -> None:
    model = unrolled(
        by_hand(
            scan=", s",
            scan_out=", float[B,4] t",
            inside="x_out = Relu(h)  t = Neg(h)",
            more=", float[3,B,4] s",
        )
    )
    assert [value.name for value in model.graph.outputs] == ["y", "s"]
    assert op_types(model).count("Unsqueeze") == 3
    assert op_types(model).count("Concat") == 1


def test_a_carried_value_that_is_passed_through_is_its_start() -> None:
    text = """main (float[B,4] x0) => (float[B,4] y, float[B,4] z) {
        start = Neg(x0)
        y, z = Loop(n, , x0, start) <body = b (int64 i, bool c, float[B,4] x, float[B,4] k)
            => (bool c_out, float[B,4] x_out, float[B,4] k_out) {
            c_out = Identity(c)
            x_out = Add(x, k)
            k_out = Identity(k)
        }>
    }"""
    result = unrolled(build(text, {"n": np.array(2)}))
    assert [(n.op_type, n.outputs[0].name) for n in result.graph] == [
        ("Neg", "z"),
        ("Add", "x_out"),
        ("Add", "y"),
    ]


def test_constants_of_the_body_are_stored_once() -> None:
    inside = "k = Constant<value = float[4] {1, 2, 3, 4}>()  x_out = Add(h, k)"
    model = unrolled(by_hand(inside=inside))
    assert op_types(model) == ["MatMul", "Add"] * 3
    assert len({node.inputs[1] for node in model.graph if node.op_type == "Add"}) == 1
    assert stored_bytes(model) == matrix(0).nbytes + 16


def test_loops_inside_a_body_follow() -> None:
    inside = """x_out = Loop(n, , h) <body = inner (int64 j, bool d, float[B,4] u)
        => (bool d_out, float[B,4] u_out) { d_out = Identity(d)  u_out = MatMul(u, W) }>"""
    model = unrolled(by_hand(inside=inside))
    assert op_types(model) == ["MatMul"] * 12
    names = [node.outputs[0].name for node in model.graph]
    assert len(set(names)) == 12


@pytest.mark.parametrize(
    "parts",
    [
        {"condition": "yes"},
        {"condition_out": "Constant<value = bool {1}>()"},
    ],
)
def test_a_condition_that_is_always_true_does_not_matter(parts: dict[str, str]) -> None:
    assert "Loop" not in op_types(unrolled(by_hand((), **parts)))


def test_loops_of_an_unknown_number_of_iterations_stay_with_the_reason() -> None:
    computed = by_hand(before="m = Size(x0)", count="m")
    assert reasons(computed) == ["its trip count is not constant"]
    endless = by_hand(count="", condition="yes")
    assert reasons(endless) == ["it has no trip count"]
    until = by_hand(condition_out="Less(i, two)")
    assert reasons(until) == ["its body computes the condition"]
    maybe = by_hand(before="s = Size(x0)  b = Cast<to = 9>(s)", condition="b")
    assert reasons(maybe) == ["its condition is not constantly true"]


def test_a_trip_count_that_callers_may_override_is_not_constant() -> None:
    model = by_hand()
    count = model.graph.initializers["n"]
    model.graph.inputs.append(count)
    assert reasons(model) == ["its trip count is not constant"]


def test_a_loop_inside_a_branch_stays() -> None:
    text = """main (float[B,4] x0, bool c) => (float[B,4] y) {
        y = If(c) <then_branch = t () => (float[B,4] p) {
            p = Loop(n, , x0) <body = b (int64 i, bool d, float[B,4] x)
                => (bool d_out, float[B,4] x_out) { d_out = Identity(d)  x_out = Neg(x) }> },
          else_branch = e () => (float[B,4] q) { q = Relu(x0) }>
    }"""
    assert reasons(build(text, {"n": np.array(2)})) == ["it is inside another node's graph"]


def test_a_loop_that_never_runs_gives_its_start() -> None:
    model = by_hand(count="zero")
    assert op_types(unrolled(model)) == ["Identity"]


def test_two_loops_whose_bodies_use_the_same_names_can_both_be_written_out() -> None:
    text = """g (float[2] x) => (float[2] y) {
        h = Neg(x)
        a = Loop(n, , h) <body = one (int64 i, bool go, float[2] now)
            => (bool go_on, float[2] next) {
                go_on = Identity(go)  t = Neg(now)  next = Add(t, w) }>
        y = Loop(n, , a) <body = two (int64 i, bool go, float[2] now)
            => (bool go_on, float[2] next) {
                go_on = Identity(go)  t = Abs(now)  next = Mul(t, w) }> }"""
    model = build(text, {"n": np.array(2), "w": np.full(2, 3, np.float32)})
    for graph in (model.graph, *model.graph.subgraphs()):
        graph.node(1 if graph is not model.graph else 0).name = "same"
    feeds = {"x": np.array([1.5, -2], np.float32)}
    after = assert_pass_preserves(UnrollLoopsPass, model, feeds)
    assert op_types(after) == ["Neg", *["Neg", "Add"] * 2, *["Abs", "Mul"] * 2]
