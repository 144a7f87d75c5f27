"""Values inside rolled layers that something outside needs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from tests.passes.helpers import assert_pass_preserves
from tests.passes.roll_graphs import FEEDS, LAYER, attempt, chain, loops, node_count


def rolled(model: ir.Model) -> ir.Model:
    return assert_pass_preserves(RollRepeatedBlocksPass, model, *FEEDS, may_grow=True)


def test_the_result_of_every_layer_may_be_an_output() -> None:
    every = ", ".join(f"float[B,4] x{i}" for i in range(1, 5))
    model = rolled(chain([LAYER] * 4, outputs=every))
    assert [value.name for value in model.graph.outputs] == ["x1", "x2", "x3", "x4"]
    (loop,) = loops(model)
    assert len(loop.outputs) == 2
    assert loop.outputs[0] is model.graph.outputs[3]
    assert [node.op_type for node in model.graph] == ["Loop", "Gather", "Gather", "Gather"]
    assert loop.outputs[1].shape == ir.Shape([4, "B", 4])
    outputs = loop.attributes["body"].as_graph().outputs
    assert len(set(outputs)) == len(outputs) == 3  # carried and scanned: two names for x


def test_the_input_of_the_first_layer_may_be_an_output_too() -> None:
    model = chain(
        [LAYER] * 3,
        before="x0 = Neg(x)",
        inputs="float[B,4] x",
        outputs="float[B,4] x0, float[B,4] x1, float[B,4] x3",
    )
    feeds = {"x": FEEDS[1]["x0"]}
    result = assert_pass_preserves(RollRepeatedBlocksPass, model, feeds, may_grow=True)
    assert [node.op_type for node in result.graph] == ["Neg", "Loop", "Gather"]


def test_an_output_from_the_middle_of_a_layer_keeps_its_name_and_value() -> None:
    model = rolled(chain([LAYER] * 4, outputs="float[B,4] g2, float[B,4] x4"))
    _, (run,), _ = attempt(chain([LAYER] * 4, outputs="float[B,4] g2, float[B,4] x4"))
    assert run.scanned == ("g2",)
    assert [value.name for value in model.graph.outputs] == ["g2", "x4"]
    assert node_count(model) == 1 + 4 + 1


def test_an_output_from_the_first_layer_takes_its_name_from_the_body() -> None:
    model = rolled(chain([LAYER] * 4, outputs="float[B,4] h1, float[B,4] x4"))
    names = [value.name for node in model.graph.all_nodes() for value in node.outputs]
    assert names.count("h1") == 1
    assert model.graph.outputs[0].name == "h1"


def test_an_outside_node_may_use_any_layer() -> None:
    model = rolled(
        chain(
            [LAYER] * 4,
            after="s = Add(h1, h3)  y = Mul(s, x4)",
            outputs="float[B,4] y",
        )
    )
    expected = ["Loop", "Gather", "Gather", "Add", "Mul"]
    assert [node.op_type for node in model.graph] == expected


def test_two_values_of_one_layer_are_scanned_separately() -> None:
    model = rolled(chain([LAYER] * 4, outputs="float[B,4] h2, float[B,4] g3, float[B,4] x4"))
    assert len(loops(model)[0].outputs) == 3


def test_a_value_of_unknown_shape_is_not_scanned() -> None:
    # The shape comes from data: nothing proves that rows of a scan would be equally long.
    layer = (
        "h{i} = MatMul(x{p}, W)  r{i} = Reshape(h{i}, shape)  g{i} = Relu(r{i})  "
        "k{i} = Neg(g{i})  x{i} = Add(k{i}, x{p})"
    )
    inputs = "float[B,4] x0, int64[2] shape"
    feeds = {**FEEDS[1], "shape": np.array([3, 4])}
    scanned = chain([layer] * 4, inputs=inputs, outputs="float[B,4] x4, float[P,Q] g2")
    for node in scanned.graph:
        if node.op_type == "Relu" and not node.outputs[0].is_graph_output():
            assert node.outputs[0].shape is None
    _, runs, (skipped,) = attempt(scanned)
    assert runs == []
    assert "is needed outside" in skipped.reason and "shape" in skipped.reason
    assert_pass_preserves(RollRepeatedBlocksPass, scanned, feeds, modified=False)
    plain = chain([layer] * 4, inputs=inputs)
    assert_pass_preserves(RollRepeatedBlocksPass, plain, feeds, may_grow=True)


def test_an_outside_value_between_layers_that_feeds_none_stays_outside() -> None:
    # Each layer has a side branch that ends in an output of its own.
    side = LAYER + "  side{i} = Neg(g{i})"
    outputs = ", ".join(f"float[B,4] side{i}" for i in range(1, 5)) + ", float[B,4] x4"
    model = rolled(chain([side] * 4, outputs=outputs))
    assert sum(node.op_type == "Neg" for node in model.graph) == 4
    assert np.all([value.name.startswith("side") for value in model.graph.outputs[:4]])  # type: ignore[union-attr]
