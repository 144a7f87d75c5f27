"""Models that were calibrated are evaluated twice: through all layers, and leaving early."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.calibration import CalibrationOptions, calibrate_artifact
from exporter.evaluation import EvaluationOptions, evaluate_artifact
from exporter.records import LayersUsed, parse_record, to_json
from tests.evaluation.exits import LAYERS, leaving_artifact

DATA = "text,label\ngood good film,negative\ngood,positive\nbad,negative\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.csv"
    path.write_text(DATA)
    return path


@pytest.mark.parametrize("batch", [1, 3])
def test_a_calibrated_model_is_run_through_all_layers_and_leaving_early(
    tmp_path: Path, data: Path, batch: int
) -> None:
    artifact = leaving_artifact(tmp_path / "exit-onnx")
    options = CalibrationOptions(max_loss=50, values=[0.6], variants=["int8"])
    artifact, _ = calibrate_artifact(artifact, data, options)
    report = evaluate_artifact(artifact, data, EvaluationOptions(batch=batch))
    found = {model.record.variant: model.record for model in report.models}
    assert list(found) == ["fp32", "int8", "int8-exit"]
    assert (found["int8"].correct, found["int8-exit"].correct) == (3, 2)
    assert found["int8"].layers is None
    early = found["int8-exit"]
    assert early.layers == LayersUsed(
        setting="exit_threshold", value=0.6, mean=1.0, p90=1.0, of=LAYERS
    )
    assert early.model == found["int8"].model
    assert parse_record(to_json(early)) == early


def test_layers_are_those_of_the_texts(tmp_path: Path, data: Path) -> None:
    artifact = leaving_artifact(tmp_path / "exit-onnx")
    options = CalibrationOptions(values=[0.9], variants=["int8"])
    artifact, _ = calibrate_artifact(artifact, data, options)
    report = evaluate_artifact(artifact, data, EvaluationOptions(variants=["int8"]))
    layers = report.models[-1].record.layers
    assert layers is not None
    assert (layers.mean, layers.p90) == (pytest.approx(7 / 3), pytest.approx(2.8))  # 3, 2, 2


def test_without_a_calibration_models_are_run_once(tmp_path: Path, data: Path) -> None:
    report = evaluate_artifact(leaving_artifact(tmp_path / "exit-onnx"), data)
    assert [model.record.variant for model in report.models] == ["fp32", "int8"]
