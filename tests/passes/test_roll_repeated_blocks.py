"""Which runs of blocks become a loop, and which look-alikes do not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from exporter.errors import PassError
from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from tests.passes.helpers import assert_pass_preserves
from tests.passes.roll_graphs import (
    FEEDS,
    LAYER,
    WEIGHTS,
    Weights,
    attempt,
    chain,
    loops,
    matrix,
    node_count,
    vector,
)

REVERSIBLE = (
    "f{i} = MatMul(b{p}, W)  a{i} = Add(a{p}, f{i})  g{i} = MatMul(a{i}, V)  b{i} = Add(b{p}, g{i})"
)


def rolled(model: ir.Model, *feeds: dict[str, np.ndarray]) -> ir.Model:
    return assert_pass_preserves(
        RollRepeatedBlocksPass, model, *(feeds or FEEDS), modified=True, may_grow=True
    )


def untouched(model: ir.Model, *feeds: dict[str, np.ndarray]) -> None:
    assert_pass_preserves(RollRepeatedBlocksPass, model, *(feeds or FEEDS), modified=False)


@pytest.mark.parametrize("count", [2, 3, 12])
def test_equal_layers_become_one_loop_over_one_copy(count: int) -> None:
    model = rolled(chain([LAYER] * count))
    (loop,) = loops(model)
    assert [node.op_type for node in model.graph] == ["Loop"]
    body = loop.attributes["body"].as_graph()
    assert [node.op_type for node in body] == ["Identity", "MatMul", "Relu", "Add"]
    trip_count = loop.inputs[0]
    assert trip_count is not None and trip_count.const_value is not None
    assert trip_count.const_value.numpy() == count
    assert trip_count.const_value.dtype == ir.DataType.INT64


def test_the_body_captures_the_weight_of_the_main_graph() -> None:
    model = rolled(chain([LAYER] * 3))
    body = loops(model)[0].attributes["body"].as_graph()
    product = next(node for node in body if node.op_type == "MatMul")
    assert product.inputs[1] is model.graph.initializers["W"]
    assert not body.initializers


def test_the_body_keeps_names_and_shapes_of_the_first_layer() -> None:
    model = rolled(chain([LAYER] * 3))
    body = loops(model)[0].attributes["body"].as_graph()
    assert [value.name for node in body for value in node.outputs][1:] == ["h1", "g1", "x1"]
    carried = body.inputs[2]
    assert carried.dtype == ir.DataType.FLOAT
    assert carried.shape == ir.Shape(["B", 4])
    assert body.outputs[1].shape == ir.Shape(["B", 4])


def test_what_was_rolled_is_reported() -> None:
    _, (run,), skipped = attempt(chain([LAYER] * 3))
    assert (run.blocks, run.nodes_per_block) == (3, 3)
    assert run.carried == ("x1_in",)
    assert (run.stacks, run.stacked_bytes, run.scanned) == ((), 0, ())
    assert run.shared_bytes == WEIGHTS["W"].nbytes
    assert run.saved_bytes == -8  # the trip count
    assert run.value == "rolled_blocks"
    assert skipped == []


def test_names_that_are_taken_are_avoided() -> None:
    taken = "trip_count = Relu(x0)  x1_in = Neg(trip_count)  iteration = Abs(x1_in)"
    model = chain([LAYER] * 3, before=taken, after="y = Add(x3, iteration)", outputs="float[B,4] y")
    names = [value.name for node in rolled(model).graph.all_nodes() for value in node.outputs]
    assert len(names) == len(set(names))


def test_the_same_graph_gives_the_same_bytes() -> None:
    model = chain([LAYER] * 4)
    one, other = (ir.to_proto(attempt(model)[0]).SerializeToString() for _ in range(2))
    assert one == other


def test_layers_with_another_attribute_in_one_of_them_do_not_roll() -> None:
    soft = LAYER.replace("Relu(h{i})", "Softmax<axis = {axis}>(h{i})")
    first, second, third = (soft.replace("{axis}", axis) for axis in ("-1", "-1", "0"))
    model = rolled(chain([first, second, second]))
    assert [node.op_type for node in model.graph] == ["Loop"]
    untouched(chain([first, third]))
    _, (run,), _ = attempt(chain([first, second, third]))
    assert run.blocks == 2


def test_layers_with_another_large_weight_in_one_of_them_do_not_roll() -> None:
    weights = {"W": matrix(0), "V": matrix(1)}
    other = LAYER.replace("W", "V")
    untouched(chain([LAYER, other], weights))
    _, (run,), _ = attempt(chain([LAYER, LAYER, other], weights))
    assert run.blocks == 2


def test_an_equal_weight_under_another_name_counts_as_the_same() -> None:
    weights = {"W": matrix(0), "V": matrix(0)}
    model = rolled(chain([LAYER, LAYER.replace("W", "V"), LAYER], weights))
    assert list(model.graph.initializers) == ["W", "trip_count"]


def test_weights_that_differ_in_the_sign_of_a_zero_are_not_the_same() -> None:
    zero = np.zeros((4, 4), np.float32)
    untouched(chain([LAYER, LAYER.replace("W", "V")], {"W": zero, "V": -zero}))


def test_a_weight_that_callers_may_override_is_shared_but_never_stacked() -> None:
    inputs = "float[B,4] x0, float[4,4] W"
    model = chain([LAYER] * 3, {}, inputs=inputs)
    feeds = {**FEEDS[0], "W": matrix(0)}
    assert_pass_preserves(RollRepeatedBlocksPass, model, feeds, modified=False)
    # Not a constant, so no weight; long enough to be worth a loop all the same.
    model = chain([LAYER] * 8, {}, inputs=inputs)
    assert [node.op_type for node in rolled(model, feeds).graph] == ["Loop"]


def test_a_broken_chain_gives_no_loop() -> None:
    # Both layers take x0: neither feeds the other.
    parallel = [LAYER, LAYER.replace("x{p}", "x0")]
    model = chain(parallel, after="y = Add(x1, x2)", outputs="float[B,4] y")
    untouched(model)


def test_an_operator_between_two_layers_breaks_the_run() -> None:
    between = LAYER + "  z{i} = Neg(x{i})"
    next_layer = LAYER.replace("x{p}", "z{p}")
    untouched(chain([between, next_layer]))


def test_a_path_that_leaves_a_layer_and_comes_back_two_later_breaks_the_run() -> None:
    reaching_back = LAYER.replace("Add(g{i}, x{p})", "Add(g{i}, x0)")
    model = chain([LAYER, LAYER, reaching_back.replace("x0", "h1")])
    _, (run,), _ = attempt(model)
    assert run.blocks == 2


def test_every_layer_may_use_the_embedding() -> None:
    injected = LAYER.replace("Add(g{i}, x{p})", "Add(g{i}, x0)")
    model = rolled(chain([injected] * 4))
    body = loops(model)[0].attributes["body"].as_graph()
    add = next(node for node in body if node.op_type == "Add")
    assert add.inputs[1] is model.graph.inputs[0]


def test_layers_may_give_more_than_one_value_to_the_next() -> None:
    weights = {"W": matrix(0), "V": matrix(1)}
    start = "a0 = Neg(x0)  b0 = Abs(x0)"
    model = chain([REVERSIBLE] * 4, weights, before=start, outputs="float[B,4] a4, float[B,4] b4")
    _, (run,), _ = attempt(model)
    assert (run.blocks, len(run.carried)) == (4, 2)
    rolled(model)


def test_a_value_carried_from_two_different_starts_is_carried_twice() -> None:
    # From the second layer on both inputs are the same value.
    layer = "h{i} = MatMul(x{p}, W)  x{i} = Add(h{i}, x{p})"
    first = "h{i} = MatMul(x0, W)  x{i} = Add(h{i}, other)"
    model = chain([first, *[layer] * 3], before="other = Neg(x0)")
    _, (run,), _ = attempt(model)
    assert (run.blocks, len(run.carried)) == (4, 2)
    rolled(model)


def test_a_carried_value_may_start_from_a_constant() -> None:
    weights = {"W": matrix(0), "V": matrix(1), "a0": np.zeros((1, 4), np.float32)}
    model = chain([REVERSIBLE] * 4, weights, before="b0 = Abs(x0)", outputs="float[B,4] b4")
    _, (run,), _ = attempt(model)
    assert (run.blocks, len(run.carried)) == (4, 2)
    rolled(model)


def test_a_carried_value_that_changes_its_size_is_refused_with_the_reason() -> None:
    layer = "h{i} = MatMul(x{p}, W)  g{i} = Relu(h{i})  x{i} = Concat<axis = 0>(g{i}, x{p})"
    model = chain([layer] * 2, inputs="float[2,4] x0", outputs="float[8,4] x2")
    _, runs, (skipped,) = attempt(model)
    assert runs == []
    assert (skipped.blocks, skipped.nodes_per_block) == (2, 3)
    assert "type or shape" in skipped.reason
    untouched(model, {"x0": np.ones((2, 4), np.float32)})


def test_layers_whose_values_are_first_needed_two_layers_later_roll_in_part() -> None:
    layer = "h{i} = MatMul(x{p}, W)  m{i} = Mul(h{i}, x{p})  x{i} = Add(h{i}, m{p})"
    model = chain([layer] * 5, {"W": matrix(0), "m0": np.zeros((1, 4), np.float32)})
    result = rolled(model)
    assert len(loops(result)) == 1
    assert node_count(result) < node_count(model)


def test_a_start_that_is_broadcast_by_the_first_layer_is_refused_with_the_reason() -> None:
    layer = "a{i} = Add(x{p}, C)  h{i} = MatMul(a{i}, W)  x{i} = Relu(h{i})"
    weights = {"W": matrix(0), "C": matrix(1)}
    model = chain([layer] * 3, weights, inputs="float[1,4] x0", outputs="float[4,4] x3")
    _, (run,), _ = attempt(model)
    assert run.blocks == 2  # from the second layer on sizes stay
    _, runs, (skipped,) = attempt(
        chain([layer] * 2, weights, inputs="float[1,4] x0", outputs="float[4,4] x2")
    )
    assert runs == []
    assert "x0 and x1 differ in type or shape" in skipped.reason


def test_repeated_arithmetic_without_a_weight_needs_to_save_sixteen_nodes() -> None:
    layer = "a{i} = Add(x{p}, c)  x{i} = Mul(a{i}, c)"
    weights = {"c": vector(0)}
    untouched(chain([layer] * 9, weights))
    model = rolled(chain([layer] * 11, weights))
    assert node_count(model) == 4


def test_a_loop_that_would_not_be_smaller_is_not_made() -> None:
    layer = "x{i} = MatMul(x{p}, W)"
    untouched(chain([layer] * 3))
    assert node_count(rolled(chain([layer] * 4))) == 3


def test_random_operators_stay_unrolled() -> None:
    noisy = "n{i} = RandomNormalLike<seed = 1.0>(x{p})  h{i} = MatMul(n{i}, W)  "
    noisy += "g{i} = Relu(h{i})  x{i} = Add(g{i}, x{p})"
    assert attempt(chain([noisy] * 4))[1] == []


def test_operators_with_inner_graphs_stay_unrolled() -> None:
    layer = (
        "h{i} = MatMul(x{p}, W)  x{i} = If(c) <"
        "then_branch = t{i} () => (float[B,4] t{i}o) {{ t{i}o = Relu(h{i}) }},"
        "else_branch = e{i} () => (float[B,4] e{i}o) {{ e{i}o = Neg(h{i}) }}>"
    )
    model = chain([layer] * 4, inputs="float[B,4] x0, bool c")
    untouched(model, {**FEEDS[0], "c": np.array(True)})


def test_a_branch_that_captures_a_value_of_a_layer_keeps_it() -> None:
    branch = (
        "y = If(c) <then_branch = t () => (float[B,4] to) { to = Add(g2, x4) },"
        "else_branch = e () => (float[B,4] eo) { eo = Neg(x4) }>"
    )
    model = chain([LAYER] * 4, after=branch, inputs="float[B,4] x0, bool c", outputs="float[B,4] y")
    result = rolled(model, *({**FEEDS[1], "c": np.array(flag)} for flag in (True, False)))
    assert sorted(node.op_type for node in result.graph) == ["Gather", "If", "Loop"]


def test_constant_nodes_count_as_constants() -> None:
    layer = "k{i} = Constant<value_float = {c}>()  h{i} = MatMul(x{p}, W)  x{i} = Mul(h{i}, k{i})"
    same = chain([layer.replace("{c}", "0.5")] * 4)
    model = rolled(same)
    assert sorted(node.op_type for node in model.graph) == ["Constant", "Loop"]
    different = chain([layer.replace("{c}", str(0.5 + i)) for i in range(4)])
    _, (run,), _ = attempt(different, limit=4)
    assert run.stacked_bytes == 4


def test_the_shortest_block_that_covers_the_run_is_taken() -> None:
    weights = {"W": matrix(0), "V": matrix(1)}
    other = LAYER.replace("W", "V")
    model = rolled(chain([LAYER, other] * 3, weights))
    assert node_count(model) == 2 + 6
    model = rolled(chain([LAYER, LAYER, other] * 3, weights))
    assert node_count(model) == 2 + 9


def test_alternating_layers_that_share_one_weight_roll_from_the_first_on() -> None:
    soft = LAYER.replace("Relu", "Tanh")
    model = chain([LAYER, soft] * 3, before="z = MatMul(x, W)  x0 = Neg(z)", inputs="float[B,4] x")
    result = rolled(model, {"x": FEEDS[1]["x0"]})
    assert [node.op_type for node in result.graph] == ["MatMul", "Neg", "Loop"]


@pytest.mark.parametrize("count", [2, 3])
def test_what_layers_share_may_be_computed_after_the_first_weight(count: int) -> None:
    layer = LAYER.replace("Relu(h{i})", "Mul(h{i}, m)")
    model = chain([layer] * count, before="m = Neg(o)", inputs="float[B,4] x0, float[4] o")
    result = rolled(model, {**FEEDS[1], "o": vector(1)})
    assert [node.op_type for node in result.graph] == ["Neg", "Loop"]


def test_groups_with_weights_of_their_own_become_a_loop_each() -> None:
    weights = {"W": matrix(0), "V": matrix(1), "c": vector(2)}
    biased = "h{i} = MatMul(x{p}, W)  b{i} = Add(h{i}, c)  x{i} = Relu(b{i})"
    model = rolled(chain([biased] * 3 + [biased.replace("W", "V")] * 4, weights))
    counts = [loop.inputs[0].const_value.numpy().item() for loop in loops(model)]  # type: ignore[union-attr]
    assert counts == [3, 4]


def test_loops_are_reported_in_the_order_of_the_graph() -> None:
    wide = np.random.default_rng(7).standard_normal((4, 32)).astype(np.float32) / 8
    heavier = "u{i} = MatMul(x{p}, U)  r{i} = Relu(u{i})  x{i} = MatMul(r{i}, D)"
    weights = {"W": matrix(0), "U": wide, "D": wide.T.copy()}
    model, runs, _ = attempt(chain([LAYER] * 3 + [heavier] * 4, weights))
    assert [run.blocks for run in runs] == [3, 4]
    assert [run.value for run in runs] == [loop.name for loop in loops(model)]


def test_a_norm_before_and_after_the_layers_stays_outside() -> None:
    layer = "n{i} = LayerNormalization(x{p}, s)  h{i} = MatMul(n{i}, W)  x{i} = Add(h{i}, x{p})"
    model = chain(
        [layer] * 4,
        {"W": matrix(0), "s": vector(0)},
        before="e = Relu(x)  x0 = Add(e, x)",
        after="y = LayerNormalization(x4, s)",
        inputs="float[B,4] x",
        outputs="float[B,4] y",
    )
    _, (run,), _ = attempt(model)
    assert (run.blocks, run.nodes_per_block, len(run.carried)) == (4, 3, 1)
    result = rolled(model, {"x": FEEDS[1]["x0"]})
    expected = ["Relu", "Add", "Loop", "LayerNormalization"]
    assert [node.op_type for node in result.graph] == expected


def test_weights_hidden_behind_a_shared_dequantization_roll() -> None:
    weights: Weights = {
        "q": np.random.default_rng(0).integers(-99, 99, (4, 4)).astype(np.int8),
        "s": np.array(0.01, np.float32),
    }
    once = chain([LAYER] * 3, weights, before="W = DequantizeLinear(q, s)")
    assert [n.op_type for n in rolled(once).graph] == ["DequantizeLinear", "Loop"]
    each = "w{i} = DequantizeLinear(q, s)  h{i} = MatMul(x{p}, w{i})  x{i} = Add(h{i}, x{p})"
    _, (run,), _ = attempt(chain([each] * 3, weights))
    assert (run.blocks, run.nodes_per_block, run.shared_bytes) == (3, 3, 20)


def test_a_file_without_types_and_shapes_rolls_all_the_same() -> None:
    model = chain([LAYER] * 3)
    for node in model.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.type, value.shape = None, None
    body = loops(rolled(model))[0].attributes["body"].as_graph()
    assert body.inputs[2].dtype == ir.DataType.FLOAT


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(PassError, match="must be 0 or more"):
        RollRepeatedBlocksPass(max_stacked_bytes_per_iteration=-1)
