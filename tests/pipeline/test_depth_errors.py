"""The error of a precision after each number of passes through the layers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from exporter.inputs import InputSpec, ModelInputs
from exporter.onnx_files import read_model
from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from exporter.pipeline.depth_errors import DepthErrors, DepthProbe
from exporter.pipeline.variants import store_model
from exporter.precision import find_precision
from tests.passes.helpers import build, run
from tests.pipeline.sources import export, record, stack_of_layers

SIZE = 48
INPUTS = ModelInputs((InputSpec("x0", "float32", ("batch", SIZE)),), {})
INT8 = find_precision("int8")


def rolled(folder: Path, groups: list[int]) -> ir.Model:
    model = read_model(stack_of_layers(folder, groups))
    RollRepeatedBlocksPass()(model)
    return model


def errors(model: ir.Model) -> dict[int, float]:
    return dict(DepthProbe(model, INPUTS).errors(store_model(model, INT8).model).by_uses)


def test_there_is_an_error_after_each_pass(tmp_path: Path) -> None:
    found = errors(rolled(tmp_path, [5]))
    assert list(found) == [1, 2, 3, 4, 5]
    assert all(0 < error < 0.1 for error in found.values())


def test_each_is_that_of_a_model_that_has_so_many_layers(tmp_path: Path) -> None:
    found = errors(rolled(tmp_path, [5]))
    feeds = INPUTS.draw({"batch": 2})
    for depth in (2, 3):
        shallow = read_model(stack_of_layers(tmp_path, [depth]))
        (exact,), (rounded,) = (
            run(model, feeds, as_written=False)
            for model in (shallow, store_model(shallow, INT8).model)
        )
        by_hand = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
        assert found[depth] == pytest.approx(by_hand, rel=1e-3)
    assert found[2] != pytest.approx(found[3], rel=1e-2)


def test_passes_go_to_the_first_loop_first(tmp_path: Path) -> None:
    model = rolled(tmp_path, [3, 2])
    assert [node.op_type for node in model.graph].count("Loop") == 2
    found = errors(model)
    assert list(found) == [1, 2, 3, 4, 5]
    feeds = INPUTS.draw({"batch": 2})
    shallow = read_model(stack_of_layers(tmp_path, [3, 1]))
    (exact,), (rounded,) = (
        run(m, feeds, as_written=False) for m in (shallow, store_model(shallow, INT8).model)
    )
    by_hand = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    assert found[4] == pytest.approx(by_hand, rel=1e-3)


def test_the_graphs_are_left_as_they_are(tmp_path: Path) -> None:
    model = rolled(tmp_path, [4])
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    probe = DepthProbe(model, INPUTS)
    probe.errors(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_the_same_precision_has_no_error(tmp_path: Path) -> None:
    model = rolled(tmp_path, [4])
    assert set(DepthProbe(model, INPUTS).errors(model).by_uses.values()) == {0.0}


def test_without_a_loop_there_is_nothing_to_tell(tmp_path: Path) -> None:
    model = read_model(stack_of_layers(tmp_path, [1]))
    assert errors(model) == {}
    assert record(export(stack_of_layers(tmp_path, [1]), "int8"), "int8")["errors_by_depth"] == []


def test_a_loop_whose_number_of_passes_nobody_knows_is_left_alone(tmp_path: Path) -> None:
    text = """main (float[batch,48] x0, int64 n) => (float[batch,48] y) {
        y = Loop(n, , x0) <body = layer (int64 i, bool go, float[batch,48] a)
            => (bool on, float[batch,48] b) { on = Identity(go) m = MatMul(a, w) b = Tanh(m) }> }"""
    model = build(text, {"w": np.eye(48, dtype=np.float32)})
    inputs = ModelInputs((*INPUTS.specs, InputSpec("n", "int64", ())), {})
    assert DepthProbe(model, inputs).totals == []


def test_more_than_48_passes_are_tried_in_steps_the_last_one_always(tmp_path: Path) -> None:
    model = rolled(tmp_path, [100])
    assert DepthProbe(model, INPUTS).totals == [*range(3, 100, 3), 100]
    assert DepthProbe(rolled(tmp_path, [48]), INPUTS).totals == list(range(1, 49))


def test_the_manifest_lists_passes_and_errors_in_order(tmp_path: Path) -> None:
    assert DepthErrors({1: 0.25, 2: 0.5}).to_list() == [
        {"uses": 1, "relative_error": 0.25},
        {"uses": 2, "relative_error": 0.5},
    ]
    source = stack_of_layers(tmp_path, [3, 2])
    seen = [
        record(export(source, "int8", layout=layout), "int8")["errors_by_depth"]
        for layout in ("auto", "unrolled")
    ]
    assert [[entry["uses"] for entry in one] for one in seen] == [[1, 2, 3, 4, 5]] * 2
    assert [e["relative_error"] for e in seen[0]] == pytest.approx(
        [e["relative_error"] for e in seen[1]], rel=1e-3
    )


def test_an_error_that_is_not_finite_is_null() -> None:
    entries = DepthErrors({1: float("inf"), 2: 0.5}).to_list()
    assert json.loads(json.dumps(entries, allow_nan=False)) == [
        {"uses": 1, "relative_error": None},
        {"uses": 2, "relative_error": 0.5},
    ]
