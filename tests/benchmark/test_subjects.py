from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from exporter.artifact import Artifact, artifact_names
from exporter.benchmark import choose_subjects, model_file
from exporter.errors import BenchmarkError
from tests.benchmark.artifacts import make_artifact


@pytest.fixture
def made(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path / "demo", "fp32", "int8", "int4", "baseline", "baseline-int8")


@pytest.mark.parametrize(
    ("variants", "baseline", "expected"),
    [
        ((), None, ["fp32", "int8", "int4", "baseline", "baseline-int8"]),
        ((), True, ["fp32", "int8", "int4", "baseline", "baseline-int8"]),
        ((), False, ["fp32", "int8", "int4"]),
        (("fp32",), None, ["fp32", "baseline"]),
        (("int8",), None, ["int8", "baseline", "baseline-int8"]),
        (("int4", "fp32"), False, ["fp32", "int4"]),
        (("baseline-int8",), None, ["baseline", "baseline-int8"]),
        (("int8", "int4", "baseline"), True, ["int8", "int4", "baseline"]),
    ],
)
def test_variants_bring_their_baselines_along(
    made: Artifact, variants: tuple[str, ...], baseline: bool | None, expected: list[str]
) -> None:
    found = choose_subjects([made], variants=variants, baseline=baseline)
    assert [subject.variant for subject in found] == expected


def test_a_subject_is_what_the_manifest_says(made: Artifact) -> None:
    fp32, *_, baseline, _ = choose_subjects([made])
    content = (made.folder / "onnx/model.onnx").read_bytes()
    assert fp32.path == made.folder / "onnx/model.onnx"
    assert fp32.model.path == "onnx/model.onnx"
    assert fp32.model.file_bytes == len(content)
    assert fp32.model.sha256 == hashlib.sha256(content).hexdigest()
    assert (fp32.reference, fp32.tolerance) == (made.folder / "reference.json", 0.01)
    assert (baseline.reference, baseline.tolerance) == (None, None)
    assert fp32.inputs == made.inputs


def test_external_data_counts_and_changes_the_hash(tmp_path: Path) -> None:
    made = [
        make_artifact(
            tmp_path / name,
            "fp32",
            contents={"onnx/model.onnx": b"m", "onnx/model.onnx_data": data},
        )
        for name, data in (("a", b"one"), ("b", b"two"))
    ]
    first, second = (model_file(artifact, "fp32") for artifact in made)
    assert first.file_bytes == 4
    assert first.sha256 != second.sha256
    [subject] = choose_subjects(made[:1])
    assert [path.name for path in subject.files] == ["model.onnx", "model.onnx_data"]


def test_a_variant_that_is_nowhere_is_refused_and_one_that_is_elsewhere_is_said(
    made: Artifact, tmp_path: Path
) -> None:
    with pytest.raises(BenchmarkError, match="no artifact holds fp16; there are: fp32, int8"):
        choose_subjects([made], variants=("fp16",))
    other = make_artifact(tmp_path / "other", "fp32")
    notices: list[str] = []
    found = choose_subjects([made, other], variants=("int8", "fp32"), notice=notices.append)
    assert ("other", "fp32") in [(s.artifact, s.variant) for s in found]
    assert notices == ["other holds no int8; it holds fp32"]


def test_a_baseline_that_is_insisted_on_must_be_there(tmp_path: Path) -> None:
    bare = make_artifact(tmp_path / "bare", "fp32")
    assert len(choose_subjects([bare])) == 1
    with pytest.raises(BenchmarkError, match="bare holds no unshared baseline; export it with"):
        choose_subjects([bare], baseline=True)


def test_nothing_to_measure_is_refused(tmp_path: Path) -> None:
    only = make_artifact(tmp_path / "only", "baseline")
    with pytest.raises(BenchmarkError, match="holds anything to measure; there are: baseline"):
        choose_subjects([only], baseline=False)


def test_artifacts_are_named_after_their_folders_and_told_apart() -> None:
    def names(*paths: str) -> list[str]:
        return artifact_names([Path(path) for path in paths])

    assert names("/x/demo") == ["demo"]
    assert names("/x/demo", "/y/demo", "/x/other") == ["x/demo", "y/demo", "other"]
    assert names("/x/demo", "/x/demo") == ["demo", "demo#2"]
    assert names("/a/x/demo", "/b/x/demo") == ["a/x/demo", "b/x/demo"]
