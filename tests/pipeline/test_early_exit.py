"""Models that leave their loop early: exported, verified in every precision, refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

import exporter.passes.exit_early
import exporter.pipeline.checkpoint
from exporter.artifact import Artifact
from exporter.early_exit import NEVER_PATIENT, RuleName
from exporter.errors import ExportError, PassError, VerificationError
from exporter.inspection import inspect_path
from exporter.models import EarlyExit, SharingScheme, save_checkpoint
from exporter.passes.exit_early import ExitEarlyPass
from exporter.passes.exit_rules import Look
from exporter.pipeline import ExportOptions, export_model
from exporter.reference import check_outputs, read_reference
from exporter.runtimes.cpu import CpuSession
from tests.pipeline.sources import stack_of_layers
from tests.samples import tiny_encoder

LAYERS = 4
HEAD = {"head": "sequence_classification", "labels": ("no", "maybe", "yes")}


def export(folder: Path, rule: RuleName | None, *precisions: str, **changes: object) -> Artifact:
    path = folder / "model.pt"
    changes = {"num_hidden_layers": LAYERS} | changes
    save_checkpoint(tiny_encoder(**(changes if rule == "change" else HEAD | changes)), path)
    options = ExportOptions(early_exit=rule, precisions=precisions or ("fp32",), replace=True)
    return export_model(path, folder / f"{rule}-onnx", options)


@pytest.fixture(scope="module")
def confident(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("confident")
    return export(folder, "confidence", "fp32", "fp16", "int8", "int4")


def verified(artifact: Artifact) -> list[str]:
    return [case["case"] for case in artifact.manifest["models"][0]["verification"]["cases"]]


def test_exits_are_compared_with_pytorch_row_by_row(confident: Artifact) -> None:
    names = verified(confident)[-6:]
    assert names[:4] == [
        "exit_threshold 0",
        "exit_threshold 0, min_layers 2",
        "exit_threshold 0, min_layers 4, max_layers 1",
        "max_layers 3",
    ]
    assert names[4].startswith("exit_threshold 0.")
    assert names[5] == f"{names[4]}, min_layers 2"
    cases = confident.manifest["models"][0]["verification"]["cases"][-6:]
    assert [output["output"] for output in cases[0]["outputs"]] == ["logits", "layers_used"]
    assert all(case["outputs"][1]["differing"] == 0 for case in cases)
    assert cases[4]["outputs"][1]["rms_reference"] not in (1.0, float(LAYERS))  # some in between


def test_the_loop_is_counted_with_what_leaves_early(confident: Artifact) -> None:
    (loop,) = confident.manifest["layout"]["loops"]
    (seen,) = inspect_path(confident.folder, transfer=False).models[0].rolled
    assert (loop["loop"], loop["iterations"], loop["nodes"]) == (seen.name, LAYERS, seen.nodes)


def test_answers_that_later_passes_overwrite_fail_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only rows that leave at different passes show it."""
    keep = exporter.passes.exit_early._keep

    def overwrite(look: Look, output: ir.Value, inside: ir.Value, is_open: ir.Value) -> None:
        always = look.op("Equal", [is_open, is_open], "always")
        keep(look, output, inside, always)

    monkeypatch.setattr(exporter.passes.exit_early, "_keep", overwrite)
    with pytest.raises(VerificationError, match=r"exit_threshold 0\.\d+: last_hidden_state"):
        export(tmp_path, "change")


def test_padding_that_counts_as_change_fails_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmasked = ExitEarlyPass("change", mask=None)
    monkeypatch.setattr(exporter.pipeline.checkpoint, "_exit_pass", lambda *_: unmasked)
    with pytest.raises(VerificationError, match=r"exit_threshold 0\.\d+: last_hidden_state"):
        export(tmp_path, "change")


@pytest.mark.parametrize("rule", ["patience", "change"])
def test_every_rule_is_verified(rule: RuleName, tmp_path: Path) -> None:
    artifact = export(tmp_path, rule)
    setting = {"patience": "patience", "change": "exit_threshold"}[rule]
    assert [spec.name for spec in artifact.inputs.specs[-3:]] == [
        setting, "min_layers", "max_layers",
    ]  # fmt: skip
    between = {"patience": {"patience 1", "patience 2"}, "change": set()}[rule]
    names = [name for name in verified(artifact) if name.startswith(setting)]
    assert len(names) >= 5 and between <= set(names)
    assert artifact.manifest["verdict"] == "passed"


def test_devices_find_every_output_among_the_reference_vectors(confident: Artifact) -> None:
    cases = read_reference(confident.folder / "reference.json")
    assert cases
    for case in cases:
        rows = len(case.feeds["input_ids"])
        assert case.outputs["layers_used"].tolist() == [LAYERS] * rows
    session = CpuSession(confident.models()["fp32"], threads=1)
    assert check_outputs(cases, session.run, 1e-4).status == "passed"


def test_the_manifest_says_how_to_leave(confident: Artifact, tmp_path: Path) -> None:
    assert confident.manifest["early_exit"] == {
        "rule": "confidence", "input": "exit_threshold", "never": 1.0, "layers": LAYERS,
    }  # fmt: skip
    assert confident.manifest["outputs"] == ["logits", "layers_used"]
    patient = export(tmp_path, "patience").manifest["early_exit"]
    assert (patient["input"], patient["never"]) == ("patience", NEVER_PATIENT)
    assert export(tmp_path, None).manifest["early_exit"] is None


def test_a_precision_has_its_coverage_and_its_errors_by_depth(confident: Artifact) -> None:
    for record in confident.manifest["models"][1:]:
        assert record["coverage"]["operations_reached"] == record["coverage"]["operations_total"]
        assert [entry["uses"] for entry in record["errors_by_depth"]] == [1, 2, 3, 4]


def test_weights_are_stored_as_often_as_without_an_exit(
    confident: Artifact, tmp_path: Path
) -> None:
    plain = export(tmp_path, None).manifest
    assert 0 < confident.manifest["stored_bytes"] - plain["stored_bytes"] < 400


@pytest.mark.parametrize("variant", ["fp32", "fp16", "int8", "int4"])
def test_rows_leave_in_every_precision(confident: Artifact, variant: str) -> None:
    session = CpuSession(confident.models()[variant], inputs=confident.inputs, threads=1)
    middle = float(verified(confident)[-2].removeprefix("exit_threshold "))
    feeds = confident.inputs.draw({"batch": 8, "sequence": 8})
    used = {
        threshold: session.run(feeds | {"exit_threshold": np.array(threshold, np.float32)})[
            "layers_used"
        ]
        for threshold in (0, middle, 1)
    }
    assert used[0].tolist() == [1] * 8 and used[1].tolist() == [LAYERS] * 8
    assert used[0].shape == (8,) and used[0].dtype == np.int64
    assert 8 < used[middle].sum() < 8 * LAYERS


def test_exits_are_pytorchs_own(confident: Artifact) -> None:
    session = CpuSession(confident.models()["fp32"], inputs=confident.inputs, threads=1)
    feeds = confident.inputs.draw({"batch": 16, "sequence": 9}, seed=3, lengths=[9, 4] * 8)
    ids, mask = (torch.from_numpy(feeds[name]) for name in ("input_ids", "attention_mask"))
    with torch.no_grad():
        passes = [
            tiny_encoder(**HEAD, num_hidden_layers=n)(ids, mask) for n in range(1, LAYERS + 1)
        ]
    for threshold in (0.55, 0.6, 0.7):
        exit_ = EarlyExit("confidence", threshold)
        expected = exit_.layers_used(passes)
        outputs = session.run(feeds | {"exit_threshold": np.array(threshold, np.float32)})
        assert outputs["layers_used"].tolist() == expected.tolist()
        answers = exit_.answers(passes, expected).numpy()
        np.testing.assert_allclose(outputs["logits"], answers, atol=1e-5)


def test_an_exit_that_differs_from_pytorchs_fails_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = EarlyExit.layers_used

    def late(self: EarlyExit, outputs: list[torch.Tensor], mask: object = None) -> torch.Tensor:
        return original(self, outputs, mask) + 1  # type: ignore[arg-type]

    monkeypatch.setattr(EarlyExit, "layers_used", late)
    monkeypatch.setattr(EarlyExit, "answers", staticmethod(lambda outputs, used: outputs[0]))
    with pytest.raises(VerificationError, match="exit_threshold 0: layers_used differs in 8 of 8"):
        export(tmp_path, "confidence")


@pytest.mark.parametrize(
    ("changes", "rule", "message"),
    [
        ({"sharing": SharingScheme.parse("grouped(2)")}, "confidence", "this model has 2"),
        ({"sharing": SharingScheme.parse("none")}, "confidence", "this model has 0"),
        ({"head": "masked_lm"}, "confidence", r"two labels or more"),
        ({"head": "masked_lm"}, "change", "without a head"),
        ({}, "change", None),
    ],
)
def test_models_that_cannot_leave_early_are_refused(
    tmp_path: Path, changes: dict[str, object], rule: RuleName, message: str | None
) -> None:
    if message is None:  # the positive twin
        assert export(tmp_path, rule, **changes).manifest["verdict"] == "passed"
        return
    with pytest.raises((PassError, ExportError), match=message):
        export(tmp_path, rule, **changes)


def test_an_onnx_file_is_refused(tmp_path: Path) -> None:
    options = ExportOptions(early_exit="confidence")
    with pytest.raises(ExportError, match="needs a checkpoint"):
        export_model(stack_of_layers(tmp_path, [3]), tmp_path / "out", options)


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ({"layout": "unrolled"}, "--layout unrolled"),
        ({"dedupe": False}, "--no-dedupe"),
        ({"elastic_depth": True}, "max_layers is the depth"),
    ],
)
def test_options_that_exclude_an_early_exit_are_refused(
    options: dict[str, object], excluded: str
) -> None:
    with pytest.raises(ExportError, match=excluded):
        ExportOptions(early_exit="confidence", **options)  # type: ignore[arg-type]
