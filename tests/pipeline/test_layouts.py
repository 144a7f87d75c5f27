"""Layers as loops: captured shallowly, given their depth, compared at full depth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from exporter.artifact import Artifact
from exporter.errors import ExportError
from exporter.inputs import verification_cases
from exporter.inspection import inspect_path
from exporter.models import SharingScheme, save_checkpoint
from exporter.pipeline import ExportOptions, export_model
from exporter.pipeline import checkpoint as checkpoint_pipeline
from exporter.pipeline.layout import DepthMismatchError, lay_out
from exporter.runtimes.cpu import CpuSession
from tests.samples import tiny_encoder


def export(folder: Path, name: str, options: ExportOptions, **changes: object) -> Artifact:
    path = folder / f"{name}.pt"
    save_checkpoint(tiny_encoder(**changes), path)
    return export_model(path, folder / name, options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts")


@pytest.fixture(scope="module")
def elastic(folder: Path) -> Artifact:
    options = ExportOptions(elastic_depth=True, with_baseline=True)
    return export(folder, "elastic", options, num_hidden_layers=6)


@pytest.fixture(scope="module")
def rolled(folder: Path) -> Artifact:
    return export(folder, "rolled", ExportOptions(), num_hidden_layers=6)


@pytest.fixture(scope="module")
def unrolled(folder: Path) -> Artifact:
    return export(folder, "unrolled", ExportOptions(layout="unrolled"), num_hidden_layers=6)


def loops(artifact: Artifact) -> list[int]:
    return [loop["iterations"] for loop in artifact.manifest["layout"]["loops"]]


def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record at how many layers the module is captured from now on."""
    seen: list[int] = []
    original = checkpoint_pipeline.capture

    def record(loaded: checkpoint_pipeline.LoadedModel, *, opset: int) -> object:
        seen.append(len(loaded.module.attention_order))  # type: ignore[arg-type]
        return original(loaded, opset=opset)

    monkeypatch.setattr(checkpoint_pipeline, "capture", record)
    return seen


def test_a_shared_layer_becomes_one_loop_of_the_models_depth(rolled: Artifact) -> None:
    layout = rolled.manifest["layout"]
    assert (layout["asked"], layout["chosen"]) == ("auto", "rolled")
    assert loops(rolled) == [6]
    assert rolled.manifest["verdict"] == "passed"
    assert rolled.manifest["worst_abs_error"] <= 1e-5


@pytest.mark.parametrize("kind", ["rolled", "elastic"])
def test_loops_are_told_as_an_inspection_finds_them(
    kind: str, request: pytest.FixtureRequest
) -> None:
    artifact: Artifact = request.getfixturevalue(kind)
    (loop,) = artifact.manifest["layout"]["loops"]
    (seen,) = inspect_path(artifact.folder, transfer=False).models[0].rolled
    assert (loop["loop"], loop["iterations"], loop["nodes"]) == (
        seen.name, seen.iterations, seen.nodes,
    )  # fmt: skip


def test_depth_costs_no_bytes_and_no_capture(
    folder: Path, rolled: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = captures(monkeypatch)
    deep = export(folder, "deep", ExportOptions(), num_hidden_layers=12)
    assert seen == [2]
    assert loops(deep) == [12]
    assert deep.manifest["verdict"] == "passed"
    assert abs(deep.manifest["file_bytes"] - rolled.manifest["file_bytes"]) <= 1024


def test_written_out_and_rolled_give_the_same_bits(rolled: Artifact, unrolled: Artifact) -> None:
    assert unrolled.manifest["layout"]["loops"] == []
    assert unrolled.manifest["models"][0]["nodes"] > 2 * rolled.manifest["models"][0]["nodes"]
    one = CpuSession(rolled.models()["fp32"], optimize=False, threads=1)
    other = CpuSession(unrolled.models()["fp32"], optimize=False, threads=1)
    for case in verification_cases(rolled.inputs):
        for name, value in one.run(case.feeds).items():
            assert value.tobytes() == other.run(case.feeds)[name].tobytes(), case.name


def test_groups_of_unequal_size_become_loops_of_unequal_depth(folder: Path) -> None:
    scheme = SharingScheme("grouped", 2)
    artifact = export(folder, "groups", ExportOptions(), num_hidden_layers=5, sharing=scheme)
    assert loops(artifact) == [3, 2]
    assert artifact.manifest["verdict"] == "passed"


def test_half_shared_layers_stay_written_out_and_the_reason_is_given(folder: Path) -> None:
    scheme = SharingScheme("attention_only")
    options = ExportOptions()
    artifact = export(folder, "half", options, num_hidden_layers=3, sharing=scheme)
    layout = artifact.manifest["layout"]
    assert (layout["chosen"], layout["loops"]) == ("unrolled", [])
    assert "bytes" in layout["why"] or "MB" in layout["why"] or "kB" in layout["why"]
    assert artifact.manifest["stored_bytes"] <= artifact.manifest["unique_bytes"] + 1024


def test_a_plan_that_does_not_fit_leads_to_a_full_capture(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_plans(*args: object, depths: object = None, **options: object) -> object:
        if depths is not None:
            raise DepthMismatchError
        return lay_out(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint_pipeline, "lay_out", refuse_plans)
    seen = captures(monkeypatch)
    artifact = export(folder, "mismatch", ExportOptions(), num_hidden_layers=3)
    assert seen == [2, 3]
    assert loops(artifact) == [3]


def test_the_depth_is_an_optional_input_that_is_verified_at_every_value(elastic: Artifact) -> None:
    depth = elastic.inputs.specs[-1]
    assert (depth.name, depth.dtype, depth.shape, depth.optional) == ("depth", "int64", (), True)
    cases = elastic.manifest["models"][0]["verification"]["cases"]
    assert [case["case"] for case in cases][-6:] == [f"depth {depth}" for depth in range(1, 7)]
    assert elastic.manifest["verdict"] == "passed"


def test_another_depth_gives_other_outputs_and_the_default_is_all_layers(
    elastic: Artifact, rolled: Artifact
) -> None:
    session = CpuSession(elastic.models()["fp32"], inputs=elastic.inputs, threads=1)
    plain = CpuSession(rolled.models()["fp32"], threads=1)
    feeds = rolled.inputs.draw({"batch": 2, "sequence": 5})
    name = session.output_names[0]
    by_depth = [
        session.run(feeds | {"depth": np.array(depth, np.int64)})[name] for depth in range(1, 7)
    ]
    assert np.array_equal(session.run(feeds)[name], by_depth[-1])
    assert np.array_equal(plain.run(feeds)[name], by_depth[-1])
    assert all(np.abs(by_depth[-1] - value).max() > 1e-3 for value in by_depth[:-1])


def test_the_baseline_of_a_rolled_model_has_a_layer_per_pass(elastic: Artifact) -> None:
    baseline = elastic.manifest["models"][1]
    assert baseline["variant"] == "baseline"
    layer = 6 * (4 * (32 * 96 + 96 + 32 * 32 + 32 + 2 * 32) + 4 * (2 * 32 * 64 + 64 + 32 + 64))
    once = elastic.manifest["stored_bytes"]
    assert abs(baseline["stored_bytes"] - (once + layer * 5 // 6)) < 1024


@pytest.mark.parametrize(
    ("options", "excluded"),
    [
        ({"dedupe": False, "layout": "rolled"}, "--layout rolled"),
        ({"dedupe": False, "elastic_depth": True}, "--elastic-depth"),
        ({"layout": "unrolled", "elastic_depth": True}, "--layout unrolled"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    options: dict[str, object], excluded: str
) -> None:
    with pytest.raises(ExportError, match=excluded):
        ExportOptions(**options)  # type: ignore[arg-type]


@pytest.fixture
def alternating(tmp_path: Path) -> Iterator[Path]:
    config = transformers.AlbertConfig(
        vocab_size=100,
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        num_hidden_layers=3,
        inner_group_num=2,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    transformers.AlbertModel(config).save_pretrained(tmp_path / "albert")
    yield tmp_path / "albert"


def test_two_layers_that_alternate_are_one_block(alternating: Path, tmp_path: Path) -> None:
    artifact = export_model(alternating, tmp_path / "out")
    assert loops(artifact) == [3]
    assert artifact.manifest["verdict"] == "passed"
