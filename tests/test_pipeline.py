from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from exporter.accounting import stored_bytes
from exporter.artifact import MANIFEST_NAME, Artifact
from exporter.capture import Captured
from exporter.errors import ArtifactError, CheckpointError, ExportError, VerificationError
from exporter.inputs import verification_cases
from exporter.models import SharedEncoder, count_parameters
from exporter.pipeline import ExportOptions, as_record, export_model
from exporter.runtimes.cpu import CpuSession
from tests.samples import names_in

# Shape constants, masks, the LayerNorm's epsilon: what a graph stores beside weights.
SMALL_CONSTANTS = 4096


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_manifest_says_what_was_stored_and_shown(
    artifact: Artifact, encoder: SharedEncoder
) -> None:
    manifest, count = artifact.manifest, count_parameters(encoder)
    assert (manifest["verdict"], manifest["scheme"]) == ("passed", "all")
    assert manifest["unique_bytes"] == 4 * count.unique
    assert 0 <= manifest["stored_bytes"] - 4 * count.unique < SMALL_CONSTANTS
    assert 0 <= manifest["unshared_bytes"] - 4 * count.total < SMALL_CONSTANTS
    assert manifest["ratio"] == round(manifest["unshared_bytes"] / manifest["stored_bytes"], 3)
    assert 0 < manifest["worst_abs_error"] <= 1e-5
    assert manifest["source"]["name"] == "model.pt"
    assert manifest["source"]["kind"] == "reference"
    assert manifest["outputs"] == ["last_hidden_state"]
    model = manifest["models"][0]
    path = artifact.folder / model["path"]
    assert (model["variant"], model["path"]) == ("fp32", "onnx/model.onnx")
    assert model["file_bytes"] == path.stat().st_size == manifest["file_bytes"]
    assert model["stored_bytes"] == stored_bytes(ir.load(path))
    assert model["passes"][0]["name"] == "StripExportTracesPass"
    assert [case["case"] for case in model["verification"]["cases"]] == [
        case.name for case in verification_cases(artifact.inputs)
    ]
    json.dumps(as_record(artifact), allow_nan=False)


def test_the_configuration_is_the_models_own(artifact: Artifact, encoder: SharedEncoder) -> None:
    config = json.loads((artifact.folder / "config.json").read_text())
    own = json.loads(json.dumps(encoder.config.to_dict()))
    assert config.pop("source_model_type") == own.pop("model_type")
    # Under these names transformers.js runs it: its file does what ALBERT's does.
    assert config.pop("model_type") == "albert"
    assert (config.pop("architectures"), own.pop("architectures")) == (
        ["AlbertModel"],
        ["SharedEncoder"],
    )
    assert config == own


def test_the_baseline_has_other_weights_per_use_and_is_labelled_so(
    artifact: Artifact, encoder: SharedEncoder
) -> None:
    record = artifact.manifest["models"][1]
    assert record["variant"] == "baseline"
    assert record["verification"]["verdict"] == "not run"
    assert "its answers mean nothing" in record["note"]
    stored = stored_bytes(ir.load(artifact.models()["baseline"]))
    assert record["stored_bytes"] == stored
    assert 0 <= stored - 4 * count_parameters(encoder).total < SMALL_CONSTANTS
    main, baseline = (CpuSession(path) for path in artifact.models().values())
    for case in verification_cases(artifact.inputs):
        one, other = main.run(case.feeds), baseline.run(case.feeds)
        assert one.keys() == other.keys()
        assert np.isfinite(other["last_hidden_state"]).all()
        assert not np.allclose(one["last_hidden_state"], other["last_hidden_state"])


def test_the_same_checkpoint_gives_the_same_bytes_in_every_file(
    artifact: Artifact, checkpoint: Path, tmp_path: Path, quick_capture: None
) -> None:
    options = ExportOptions(with_baseline=True)
    again = export_model(checkpoint, tmp_path / "other name", options)
    assert contents(again.folder) == contents(artifact.folder)
    assert MANIFEST_NAME in contents(again.folder)


def test_without_deduplication_the_graph_is_kept_and_said_to_be(
    checkpoint: Path, tmp_path: Path, quick_capture: None, captured: Captured
) -> None:
    options = ExportOptions(dedupe=False)
    kept = export_model(checkpoint, tmp_path / "kept", options).manifest
    assert kept["dedupe"] is False
    assert [record["name"] for record in kept["models"][0]["passes"]] == ["StripExportTracesPass"]
    assert kept["stored_bytes"] == stored_bytes(captured.model)


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch, quick_capture: None) -> None:
    """Let the written model compute something else."""
    from exporter.pipeline import finish

    write = finish.write_model

    def write_other(model: ir.Model, path: Path) -> None:
        values = [v for v in model.graph.initializers.values() if v.name == "final_norm.bias"]
        for value in values:
            assert value.const_value is not None
            value.const_value = ir.Tensor(value.const_value.numpy() + np.float32(0.25))
        assert values
        write(model, path)

    monkeypatch.setattr(finish, "write_model", write_other)


def test_a_model_that_computes_something_else_is_not_written(
    checkpoint: Path, tmp_path: Path, damaged: None
) -> None:
    with pytest.raises(
        VerificationError, match=r"last_hidden_state \(up to 0.92\) differs by 0\.25.*nothing was"
    ):
        export_model(checkpoint, tmp_path / "new" / "out")
    assert names_in(tmp_path) == []


def test_a_failed_model_is_kept_only_if_asked_and_marked(
    checkpoint: Path, tmp_path: Path, damaged: None
) -> None:
    made = export_model(checkpoint, tmp_path / "out", ExportOptions(keep_failed=True))
    assert made.manifest["verdict"] == "failed"
    assert made.manifest["worst_abs_error"] == pytest.approx(0.25, abs=1e-5)
    verification = Artifact.load(tmp_path / "out").manifest["models"][0]["verification"]
    assert verification["verdict"] == "failed"
    assert len(verification["reasons"]) == len(verification["cases"])


def test_a_failing_export_leaves_the_artifact_that_was_there(
    checkpoint: Path, tmp_path: Path, artifact: Artifact, damaged: None
) -> None:
    shutil.copytree(artifact.folder, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(VerificationError):
        export_model(checkpoint, tmp_path / "out", ExportOptions(replace=True))
    assert contents(tmp_path / "out") == before
    assert names_in(tmp_path) == ["out"]


def test_a_baseline_that_is_not_finite_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_capture: None
) -> None:
    from exporter.pipeline import finish

    write = finish.write_model

    def write_infinite(model: ir.Model, path: Path) -> None:
        if "baseline" in path.parts:
            bias = model.graph.initializers["final_norm.bias"]
            bias.const_value = ir.Tensor(np.full(128, np.inf, np.float32))
        write(model, path)

    monkeypatch.setattr(finish, "write_model", write_infinite)
    with pytest.raises(ExportError, match="'last_hidden_state' of the unshared baseline"):
        export_model(checkpoint, tmp_path / "out", ExportOptions(with_baseline=True))
    assert names_in(tmp_path) == []


def test_a_full_disk_is_a_clear_error_that_leaves_nothing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_capture: None
) -> None:
    def full(model: ir.Model, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("exporter.pipeline.finish.write_model", full)
    with pytest.raises(ArtifactError, match=r"cannot write onnx/model\.onnx: No space left"):
        export_model(checkpoint, tmp_path / "out")
    assert names_in(tmp_path) == []


def test_the_destination_is_checked_before_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    steps: list[str] = []
    for destination in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ArtifactError):
            export_model(tmp_path / "missing.pt", destination, None, steps.append)
    assert steps == []
    with pytest.raises(CheckpointError, match=r"missing\.pt does not exist"):
        export_model(tmp_path / "missing.pt", tmp_path / "out", None, steps.append)
    assert steps == ["loading the checkpoint"]
    assert names_in(tmp_path) == ["file"]
