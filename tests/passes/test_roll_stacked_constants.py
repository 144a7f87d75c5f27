"""Constants that differ between layers: stacked, counted against a limit, or in the way."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.blocks.policy import DEFAULT_STACKED_BYTES, RollPolicy
from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from tests.passes.helpers import assert_pass_preserves, stored_bytes
from tests.passes.roll_graphs import FEEDS, attempt, chain, loops, matrix, vector

SCALED = "h{i} = MatMul(x{p}, W)  s{i} = Mul(h{i}, c{i})  x{i} = Add(s{i}, x{p})"
NORM_BYTES = 16  # one vector of 4 floats
ROOM = 64


def scaled(count: int, *, equal: tuple[int, ...] = ()) -> ir.Model:
    """Layers that share W and scale by a vector each; those in ``equal`` by the same one."""
    weights = {"W": matrix(0)}
    weights |= {f"c{i}": vector(0 if i in equal else i) for i in range(1, count + 1)}
    return chain([SCALED] * count, weights)


def rolled(model: ir.Model, limit: int | None = ROOM) -> ir.Model:
    return assert_pass_preserves(
        lambda: RollRepeatedBlocksPass(max_stacked_bytes_per_iteration=limit),
        model,
        *FEEDS,
        may_grow=True,
    )


def test_small_constants_are_stacked_and_gathered_by_iteration() -> None:
    model = rolled(scaled(4))
    (loop,) = loops(model)
    stack = model.graph.initializers["c1_stack"]
    assert stack.const_value is not None
    expected = np.stack([vector(i) for i in range(1, 5)])
    assert stack.const_value.numpy().tobytes() == expected.tobytes()
    body = loop.attributes["body"].as_graph()
    gather = next(node for node in body if node.op_type == "Gather")
    assert gather.inputs[0] is stack
    assert gather.inputs[1] is body.inputs[0]
    assert gather.outputs[0].shape == ir.Shape([4])


def test_the_stack_replaces_the_originals() -> None:
    model = scaled(4)
    result = rolled(model)
    assert set(result.graph.initializers) == {"W", "c1_stack", "trip_count"}
    assert stored_bytes(result) == stored_bytes(model) + 8


def test_a_constant_that_is_equal_in_all_layers_stays_shared() -> None:
    model = rolled(scaled(4, equal=(1, 2, 3, 4)), limit=0)
    assert set(model.graph.initializers) == {"W", "c1", "trip_count"}


def test_equal_rows_are_stored_once_behind_a_table() -> None:
    model = rolled(scaled(5, equal=(1, 3, 4)))
    stack, table = (model.graph.initializers[name] for name in ("c1_stack", "stack_rows"))
    assert stack.const_value is not None and table.const_value is not None
    assert stack.const_value.shape == ir.Shape([3, 4])
    assert table.const_value.numpy().tolist() == [0, 1, 0, 0, 2]


def test_constants_with_the_same_pattern_share_the_table() -> None:
    layer = SCALED.replace("Mul(h{i}, c{i})", "Mul(b{i}, c{i})  b{i} = Add(h{i}, d{i})")
    layer = "h{i} = MatMul(x{p}, W)  b{i} = Add(h{i}, d{i})  s{i} = Mul(b{i}, c{i})  "
    layer += "x{i} = Add(s{i}, x{p})"
    weights = {"W": matrix(0)}
    for i in range(1, 5):
        weights |= {f"c{i}": vector(i % 3), f"d{i}": vector(10 + i % 3)}
    model = rolled(chain([layer] * 4, weights))
    names = [name for name in model.graph.initializers if name.startswith("stack_rows")]
    assert names == ["stack_rows"]


def test_a_constant_used_twice_in_a_layer_is_stacked_once() -> None:
    layer = "h{i} = MatMul(x{p}, W)  s{i} = Mul(h{i}, c{i})  x{i} = Add(s{i}, c{i})"
    weights = {"W": matrix(0)} | {f"c{i}": vector(i) for i in range(1, 5)}
    _, (run,), _ = attempt(chain([layer] * 4, weights), limit=ROOM)
    assert run.stacks == ("c1_stack",)
    assert run.stacked_bytes == NORM_BYTES


def test_a_constant_that_is_also_used_outside_stays_there_as_well() -> None:
    weights = {"W": matrix(0)} | {f"c{i}": vector(i) for i in range(1, 5)}
    model = chain([SCALED] * 4, weights, after="y = Add(x4, c2)", outputs="float[B,4] y")
    assert {"c1_stack", "c2"} <= set(rolled(model).graph.initializers)


def test_scalars_of_another_value_in_each_layer_are_stacked() -> None:
    # As exporters write step numbers and scales.
    layer = (
        "k{i} = Constant<value_int = {{n}}>()  e{i} = Gather(table, k{i})  "
        "h{i} = MatMul(x{p}, W)  x{i} = Add(h{i}, e{i})"
    )
    weights = {"W": matrix(0), "table": matrix(1)}
    layers = [layer.format(i=i, p=i - 1).replace("{n}", str(i - 1)) for i in range(1, 5)]
    model = chain(layers, weights, outputs="float[B,4] x4")
    result = rolled(model)
    stack = next(v for k, v in result.graph.initializers.items() if k.endswith("_stack"))
    assert stack.const_value is not None
    assert stack.const_value.numpy().tolist() == [0, 1, 2, 3]
    assert [node.op_type for node in result.graph] == ["Loop"]


def test_over_the_limit_nothing_is_rolled_and_the_reason_names_bytes_and_limit() -> None:
    model = scaled(4)
    assert attempt(model, limit=NORM_BYTES)[1]
    copy, runs, (skipped,) = attempt(model, limit=NORM_BYTES - 1)
    assert runs == []
    assert loops(copy) == []
    assert (skipped.blocks, skipped.nodes_per_block) == (4, 3)
    assert skipped.stacked_bytes == NORM_BYTES
    assert skipped.differing == ("c1",)
    assert "4 blocks" in skipped.reason
    assert "16 bytes per iteration, limit 15" in skipped.reason
    assert "c1" in skipped.reason


def test_a_run_that_is_found_from_several_sides_is_reported_once() -> None:
    layer = (
        "b{i} = Add(x{p}, c)  h{i} = MatMul(b{i}, W{i})  n{i} = LayerNormalization(h{i}, s)  "
        "x{i} = Add(n{i}, x{p})"
    )
    weights = {"s": vector(0), "c": vector(9)} | {f"W{i}": matrix(i) for i in range(1, 9)}
    after = "y = LayerNormalization(x8, s)"
    _, runs, skipped = attempt(chain([layer] * 8, weights, after=after, outputs="float[B,4] y"))
    assert runs == []
    assert [run.blocks for run in skipped] == [8]


def test_by_default_a_third_of_the_shared_bytes_may_differ() -> None:
    policy = RollPolicy()
    assert policy.limit_bytes(3000) == 1000
    assert policy.limit_bytes(1 << 40) == DEFAULT_STACKED_BYTES
    assert RollPolicy(7).limit_bytes(3000) == 7
    # 16 of 64 bytes differ, then 32.
    assert attempt(scaled(4))[1]
    twice = SCALED.replace("Add(s{i}, x{p})", "Add(s{i}, d{i})")
    weights = {"W": matrix(0)}
    weights |= {f"c{i}": vector(i) for i in range(1, 5)}
    weights |= {f"d{i}": vector(10 + i) for i in range(1, 5)}
    _, runs, (skipped,) = attempt(chain([twice] * 4, weights))
    assert runs == []
    assert "32 bytes per iteration, limit 21" in skipped.reason


def test_constants_of_other_shapes_are_not_stacked() -> None:
    weights = {"W": matrix(0), "c1": vector(1), "c2": vector(2)[:1]}
    weights |= {"c3": vector(3), "c4": vector(4)[:1]}
    _, (run,), _ = attempt(chain([SCALED] * 4, weights), limit=ROOM)
    assert (run.blocks, run.nodes_per_block) == (2, 6)  # pairs of layers are alike


def test_strings_are_not_stacked() -> None:
    layer = (
        "e{i} = Equal(text, t{i})  f{i} = Cast<to = 1>(e{i})  h{i} = MatMul(x{p}, W)  "
        "x{i} = Mul(h{i}, f{i})"
    )
    weights: dict[str, np.ndarray | ir.TensorProtocol] = {"W": matrix(0)}
    for i in range(1, 5):
        weights[f"t{i}"] = ir.StringTensor([f"t{i}".encode()], shape=ir.Shape([1]))
    model = chain([layer] * 4, weights, inputs="float[B,4] x0, string[1] text")
    assert attempt(model, limit=ROOM)[1] == []


def test_groups_with_large_weights_of_their_own_and_small_ones_per_layer_split() -> None:
    weights = {"W": matrix(0), "V": matrix(1)} | {f"c{i}": vector(i) for i in range(1, 9)}
    layers = [SCALED] * 4 + [SCALED.replace("W", "V")] * 4
    _, runs, _ = attempt(chain(layers, weights), limit=ROOM - 1)
    assert [(run.blocks, run.stacked_bytes) for run in runs] == [(4, NORM_BYTES)] * 2


def test_groups_split_where_a_larger_weight_is_common_to_all_layers() -> None:
    wide = np.random.default_rng(7).standard_normal((4, 32)).astype(np.float32) / 8
    weights = {"U": wide, "D": wide.T.copy(), "W": matrix(0), "V": matrix(1)}
    weights |= {f"c{i}": vector(i) for i in range(1, 9)}
    layer = "u{i} = MatMul(x{p}, U)  d{i} = MatMul(u{i}, D)  h{i} = MatMul(d{i}, W)  "
    layer += "s{i} = Mul(h{i}, c{i})  x{i} = Add(s{i}, x{p})"
    layers = [layer] * 4 + [layer.replace("W", "V")] * 4
    _, runs, _ = attempt(chain(layers, weights), limit=ROOM - 1)
    assert [(run.blocks, run.stacked_bytes) for run in runs] == [(4, NORM_BYTES)] * 2


def test_alternating_constants_make_a_longer_block_rather_than_a_stack() -> None:
    layers = [SCALED.replace("c{i}", name) for name in ("a", "b") * 3]
    weights = {"W": matrix(0), "a": vector(0), "b": vector(1)}
    _, (run,), _ = attempt(chain(layers, weights), limit=ROOM)
    assert (run.blocks, run.nodes_per_block, run.stacks) == (3, 6, ())


def test_stacked_shapes_that_change_sizes_inside_a_layer_are_refused() -> None:
    layer = (
        "h{i} = MatMul(x{p}, W)  r{i} = Reshape(h{i}, shape{i})  g{i} = Relu(r{i})  "
        "b{i} = Reshape(g{i}, back)  x{i} = Add(b{i}, x{p})"
    )
    weights = {"W": matrix(0), "back": np.array([2, 4])}
    weights |= {"shape1": np.array([4, 2]), "shape2": np.array([1, 8])}
    model = chain([layer] * 2, weights, inputs="float[2,4] x0", outputs="float[2,4] x2")
    _, runs, (skipped,) = attempt(model, limit=ROOM)
    assert runs == []
    assert "another type or shape" in skipped.reason


@pytest.mark.parametrize("limit", [None, ROOM * 4])
def test_groups_that_are_exactly_alike_are_never_merged_by_a_stack(limit: int | None) -> None:
    weights = {"W": matrix(0), "V": matrix(1), "c": vector(0)}
    layer = SCALED.replace("c{i}", "c")
    layers = [layer] * 3 + [layer.replace("W", "V")] * 3
    _, runs, _ = attempt(chain(layers, weights), limit=limit)
    assert [(run.blocks, run.stacks) for run in runs] == [(3, ()), (3, ())]
