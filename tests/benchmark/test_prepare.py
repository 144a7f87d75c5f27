from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.artifact import Artifact
from exporter.benchmark import BenchmarkOptions, ResultsWriter
from exporter.benchmark.prepare import Prepared, prepare
from exporter.errors import ArtifactError, BenchmarkError
from tests.benchmark.artifacts import make_artifact
from tests.benchmark.fakes import FakeLauncher, measurement


@pytest.fixture
def made(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path / "demo", "fp32", "baseline")


def prepared(
    *folders: Path,
    launcher: FakeLauncher | None = None,
    options: BenchmarkOptions | None = None,
    transfer: bool | None = None,
    resume: Path | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Prepared:
    return prepare(
        folders,
        options or BenchmarkOptions(sessions=1, min_runs=2),
        launcher or FakeLauncher(),
        cache=folders[0].parent / "cache",
        transfer=transfer,
        resume=resume,
        progress=progress,
    )


def test_artifacts_become_runs_with_their_bytes_on_the_wire(made: Artifact) -> None:
    found = prepared(made.folder)
    [run] = found.runs
    assert [arm.case.variant for arm in run.arms] == ["fp32", "baseline"]
    for arm in run.arms:
        assert arm.subject.model.gzip_bytes is not None
        assert arm.subject.model.gzip_bytes < arm.subject.model.file_bytes
    assert [manifest["reference"] for manifest in found.manifests] == ["reference.json"]


def test_without_transfer_nothing_is_compressed(made: Artifact) -> None:
    [run] = prepared(made.folder, transfer=False).runs
    assert [arm.subject.model.gzip_bytes for arm in run.arms] == [None, None]
    assert not (made.folder.parent / "cache").exists()


def test_one_artifact_twice_is_two_arms_of_each_file(made: Artifact) -> None:
    found = prepared(made.folder, made.folder)
    assert [(a.case.artifact, a.case.variant) for a in found.runs[0].arms] == [
        ("demo", "fp32"),
        ("demo", "baseline"),
        ("demo#2", "fp32"),
        ("demo#2", "baseline"),
    ]
    assert len(found.manifests) == 1


def test_a_file_that_was_changed_since_is_not_measured(made: Artifact) -> None:
    path = made.folder / "onnx/model.onnx"
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="is not the file its manifest describes"):
        prepared(made.folder)


def test_sizes_that_do_not_fit_show_before_anything_is_compressed(made: Artifact) -> None:
    with pytest.raises(BenchmarkError, match="sequence 25 is beyond"):
        prepared(made.folder, options=BenchmarkOptions(sequences=(25,)))
    assert not (made.folder.parent / "cache").exists()


@pytest.mark.parametrize(
    ("asked", "installed", "expected"),
    [
        ((), ["chromium", "firefox"], ["chromium", "firefox"]),
        (("firefox",), ["chromium", "firefox"], ["firefox"]),
        (("firefox",), [], ["firefox"]),
        ((), [], ["chromium"]),  # which will be a record that it was not run
    ],
)
def test_browsers_are_those_asked_for_else_those_installed(
    made: Artifact, asked: tuple[str, ...], installed: list[str], expected: list[str]
) -> None:
    options = BenchmarkOptions(runtimes=("browser",), browsers=asked)
    found = prepared(made.folder, launcher=FakeLauncher(installed=installed), options=options)
    assert [run.arms[0].case.browser for run in found.runs] == expected


def test_a_file_to_resume_that_holds_no_records_is_refused_before_any_work(
    made: Artifact, tmp_path: Path
) -> None:
    out, steps = tmp_path / "results.jsonl", list[str]()
    out.write_text('{"id": 1}\n')
    with pytest.raises(BenchmarkError, match=r"results\.jsonl, line 1: no valid record"):
        prepared(made.folder, resume=out, progress=steps.append)
    assert steps == []
    assert not (made.folder.parent / "cache").exists()


def test_what_a_results_file_holds_is_left_out(made: Artifact, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    [run] = prepared(made.folder, resume=out).runs  # no such file: nothing is held
    with ResultsWriter(out) as writer:
        for arm in run.arms:
            writer.write(measurement(case=arm.case, model=arm.subject.model, samples_ms=(1.0, 2.0)))
    found = prepared(made.folder, resume=out)
    assert found.runs == ()
    assert [record.case.variant for record in found.held] == ["fp32", "baseline"]
    assert found.notices == (f"{out} holds 2 of the cases already",)

    lines = out.read_text().splitlines()
    out.write_text(lines[1] + "\n" + json.dumps({"kind": "measurement"})[:-1])
    found = prepared(made.folder, resume=out)
    assert [[a.case.variant for a in run.arms] for run in found.runs] == [["fp32", "baseline"]]
    assert found.notices == (
        f"{out} ends within line 2, which is passed over",
        "1 of the cases it holds are measured again, beside those that are compared with them",
    )
