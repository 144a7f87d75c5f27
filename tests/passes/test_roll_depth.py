"""The depth of a rolled model: changed, or left to the caller."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from exporter.errors import PassError
from exporter.passes.make_depth_elastic import MakeDepthElasticPass
from exporter.passes.set_depth import SetDepthPass
from tests.passes.helpers import assert_same_bits, run
from tests.passes.roll_graphs import FEEDS, LAYER, attempt, chain, loops, matrix, vector

SCALED = "h{i} = MatMul(x{p}, W)  s{i} = Mul(h{i}, c{i})  x{i} = Add(s{i}, x{p})"


def rolled(layers: int = 3) -> ir.Model:
    return attempt(chain([LAYER] * layers, outputs=f"float[B,4] x{layers}"))[0]


def stacked() -> ir.Model:
    weights = {"W": matrix(0)} | {f"c{i}": vector(i) for i in range(1, 4)}
    return attempt(chain([SCALED] * 3, weights))[0]


def scanned() -> ir.Model:
    return attempt(chain([LAYER] * 3, outputs="float[B,4] x1, float[B,4] x3"))[0]


def two_loops() -> ir.Model:
    weights = {"W": matrix(0), "V": matrix(1)}
    return attempt(chain([LAYER] * 3 + [LAYER.replace("W", "V")] * 3, weights))[0]


def outputs_of_depth(depth: int, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return run(chain([LAYER] * depth), feeds)


@pytest.mark.parametrize("depth", [1, 2, 12])
def test_a_rolled_model_gets_another_depth(depth: int) -> None:
    model = rolled()
    result = SetDepthPass(depth)(model)
    assert result.modified
    for feeds in FEEDS:
        assert_same_bits(run(model, feeds), outputs_of_depth(depth, feeds))
    assert SetDepthPass(depth)(model).modified is False


def test_each_loop_gets_a_depth_of_its_own() -> None:
    model = two_loops()
    SetDepthPass([2, 5])(model)
    counts = [loop.inputs[0].const_value.numpy().item() for loop in loops(model)]  # type: ignore[union-attr]
    assert counts == [2, 5]
    assert len(model.graph.initializers) == 4  # two weights, two counts: no orphans


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (stacked(), "constants of their own"),
        (scanned(), "outputs of single layers"),
        (two_loops(), "has 2"),
        (chain([LAYER] * 3), "has 0"),
    ],
    ids=["stacked", "scanned", "two loops", "no loop"],
)
def test_a_depth_that_cannot_be_set_is_an_error(model: ir.Model, message: str) -> None:
    with pytest.raises(PassError, match=message):
        SetDepthPass(6).call(model)


def test_the_depth_it_has_is_always_accepted() -> None:
    assert SetDepthPass(3)(stacked()).modified is False


def test_a_depth_below_one_is_an_error() -> None:
    with pytest.raises(PassError, match="1 or more, not 0"):
        SetDepthPass(0)


def test_depth_becomes_an_optional_input() -> None:
    model = rolled()
    result = MakeDepthElasticPass()(model)
    assert result.modified
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert [value.name for value in model.graph.inputs] == ["x0", "depth"]
    assert set(model.graph.initializers) == {"W", "depth"}
    for feeds in FEEDS:
        assert_same_bits(run(model, feeds), outputs_of_depth(3, feeds))
        for depth in (1, 2, 7):
            given = {**feeds, "depth": np.array(depth)}
            assert_same_bits(run(model, given), outputs_of_depth(depth, feeds))
        assert_same_bits(run(model, {**feeds, "depth": np.array(0)}), [feeds["x0"]])
    assert MakeDepthElasticPass()(model).modified is False


def test_a_lower_depth_uses_the_first_rows_of_stacks() -> None:
    model = stacked()
    MakeDepthElasticPass("layers")(model)
    weights = {"W": matrix(0)} | {f"c{i}": vector(i) for i in range(1, 3)}
    given = {**FEEDS[1], "layers": np.array(2)}
    assert_same_bits(run(model, given), run(chain([SCALED] * 2, weights), FEEDS[1]))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (scanned(), "outputs of single layers"),
        (two_loops(), "has 2"),
        (chain([LAYER] * 3), "has 0"),
    ],
    ids=["scanned", "two loops", "no loop"],
)
def test_a_depth_that_cannot_be_an_input_is_an_error(model: ir.Model, message: str) -> None:
    with pytest.raises(PassError, match=message):
        MakeDepthElasticPass().call(model)


def test_a_name_that_is_taken_is_an_error() -> None:
    with pytest.raises(PassError, match="'x0' is taken"):
        MakeDepthElasticPass("x0").call(rolled())
