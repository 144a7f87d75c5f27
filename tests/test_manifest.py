from __future__ import annotations

import dataclasses
from importlib import metadata
from typing import Any

import numpy as np
import pytest

from exporter.manifest import ModelRecord, build_manifest
from exporter.precision import find_precision
from exporter.verification import Verification, compare, judge, judge_relative
from tests.samples import ids_inputs

INT8 = find_precision("int8").to_dict()


def verified(error: float, *, relative: bool = False) -> Verification:
    values = np.ones(4, np.float32)
    case = compare("1x4", {"y": values}, {"y": values + np.float32(error)})
    return judge_relative((case,), 0.15) if relative else judge((case,), 1e-5)


def model(variant: str, **details: Any) -> ModelRecord:
    return ModelRecord(variant, f"onnx/{variant}.onnx", 18, 10, 4000, 5000, **details)


def manifest(graph: ModelRecord, *models: ModelRecord) -> dict[str, Any]:
    return build_manifest(
        source={"name": "model.pt"},
        scheme="all",
        dedupe=True,
        layout=None,
        unique_bytes=3900,
        unshared_bytes=12_000,
        sharing={},
        inputs=ids_inputs(100, 64),
        outputs=["y"],
        graph=graph,
        models=models,
        reference="reference.json",
        notices=["a notice"],
    )


FP32 = model("fp32", verification=verified(0.0), reference="PyTorch")
FAILED = model("int8", verification=verified(0.5, relative=True), precision=INT8)


def test_sizes_and_error_at_the_top_are_those_of_the_graph_in_float32() -> None:
    found = manifest(FP32, FP32, model("int8", verification=verified(0.125, relative=True)))
    assert (found["stored_bytes"], found["file_bytes"], found["ratio"]) == (4000, 5000, 3.0)
    assert found["worst_abs_error"] == 0.0
    assert found["libraries"]["onnxruntime"] == metadata.version("onnxruntime")
    assert found["reference"] == "reference.json"
    assert [record["variant"] for record in found["models"]] == ["fp32", "int8"]


def test_the_graph_in_float32_stands_apart_where_it_is_not_in_the_artifact() -> None:
    int8 = model("int8", verification=verified(0.125, relative=True), precision=INT8)
    assert manifest(FP32, FP32, int8)["float_graph"] is None
    alone = manifest(FP32, int8)
    assert alone["float_graph"] == FP32.to_dict()
    assert [record["variant"] for record in alone["models"]] == ["int8"]
    assert alone["stored_bytes"] == 4000


@pytest.mark.parametrize(
    ("graph", "models", "verdict"),
    [
        (FP32, (FP32, model("baseline")), "passed"),
        (FP32, (FP32, FAILED), "failed"),
        (dataclasses.replace(FP32, verification=verified(1.0)), (FAILED,), "failed"),
        (
            dataclasses.replace(FP32, verification=verified(1.0)),
            (model("int8", verification=verified(0.0, relative=True)),),
            "failed",
        ),
        (model("fp32"), (model("fp32"),), "not run"),
    ],
)
def test_one_failure_fails_the_artifact_also_one_of_a_file_that_is_not_in_it(
    graph: ModelRecord, models: tuple[ModelRecord, ...], verdict: str
) -> None:
    assert manifest(graph, *models)["verdict"] == verdict


def test_a_record_says_how_far_another_runtime_may_be_from_the_reference() -> None:
    assert FP32.to_dict()["tolerance"] == 1e-4
    assert FAILED.to_dict()["tolerance"] == INT8["tolerance"] == 0.15
    assert model("baseline", precision=INT8).to_dict()["tolerance"] is None
    assert model("baseline").to_dict()["verification"] == {"verdict": "not run"}
    assert FP32.to_dict()["verification"]["reference"] == "PyTorch"
