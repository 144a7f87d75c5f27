from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from exporter.artifact import Artifact, sha256_file
from exporter.errors import BenchmarkError, ExportError
from exporter.evaluation import EvaluationOptions, EvaluationReport, evaluate_artifact
from exporter.inputs import InputSpec
from exporter.records import parse_record, to_json
from exporter.runtimes.cpu import CpuSession
from exporter.scores import Comparison, wilson_interval
from tests.evaluation.helpers import IDS, MASK, make_artifact, word_counter

ROWS = (
    ("good film", "positive"),  # fp32: right;  int8, where "film" counts as 2 bad: wrong
    ("film film film good good", "negative"),  # fp32: wrong;  int8: right
    ("bad", "negative"),  # both right
    ("good good bad", "negative"),  # both wrong
    ("good " * 30 + "bad", "positive"),  # both right, and long, so that the others are padded
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS))
    return path


@pytest.fixture
def two(tmp_path: Path) -> Artifact:
    models = {"int8": word_counter(film=2.0), "fp32": word_counter(), "baseline": word_counter(9.0)}
    return make_artifact(tmp_path / "two-onnx", models)


def variants(report: EvaluationReport) -> list[str]:
    return [model.record.variant for model in report.models]


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_each_model_is_counted_and_compared_with_fp32(
    two: Artifact, data: Path, batch: int
) -> None:
    report = evaluate_artifact(two, data, EvaluationOptions(batch=batch))
    fp32, int8 = report.models
    assert (fp32.record.variant, fp32.record.rows, fp32.record.correct) == ("fp32", 5, 3)
    assert (int8.record.variant, int8.record.rows, int8.record.correct) == ("int8", 5, 3)
    assert int8.comparison == Comparison(rows=5, agreement=0.6, only_reference=1, only_this=1)
    assert fp32.comparison is None
    assert fp32.record.majority == 0.6
    assert report.truth.counts == (3, 2)
    assert report.notices == ()


def test_records_say_what_was_evaluated(two: Artifact, data: Path) -> None:
    report = evaluate_artifact(two, data, EvaluationOptions(command="albert-export evaluate"))
    for model in report.models:
        record = model.record
        assert parse_record(to_json(record)) == record
        assert record.artifact == "two-onnx"
        assert record.model.path == f"{record.variant}.onnx"
        assert record.model.sha256 == sha256_file(two.folder / record.model.path)
        assert record.model.file_bytes == (two.folder / record.model.path).stat().st_size
        assert (record.data, record.data_sha256) == ("d.csv", sha256_file(data))
        assert record.interval_95 == wilson_interval(3, 5)
        assert record.command == "albert-export evaluate"
    fp32, int8 = (model.record for model in report.models)
    assert (fp32.agreement, fp32.reference) == (None, None)
    assert (int8.agreement, int8.reference) == (0.6, "fp32")
    assert (int8.only_reference, int8.only_this, int8.batch) == (1, 1, 1)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [((), ["fp32", "int8"]), (("int8",), ["fp32", "int8"]), (("fp32",), ["fp32"])],
)
def test_the_reference_is_always_among_the_models_and_the_baseline_never(
    two: Artifact, data: Path, asked: Sequence[str], expected: list[str]
) -> None:
    assert variants(evaluate_artifact(two, data, EvaluationOptions(variants=asked))) == expected


def test_without_fp32_nothing_is_compared(tmp_path: Path, data: Path) -> None:
    artifact = make_artifact(tmp_path / "one", {"int8": word_counter()})
    (model,) = evaluate_artifact(artifact, data).models
    assert (model.comparison, model.record.agreement, model.record.correct) == (None, None, 3)


def test_progress_goes_up_to_all_examples_of_each_model(two: Artifact, data: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    options = EvaluationOptions(batch=2)
    evaluate_artifact(two, data, options, lambda *call: calls.append(call))
    assert calls == [(v, 5, done) for v in ("fp32", "int8") for done in (2, 4, 5)]


def test_a_limit_counts_fewer_examples(two: Artifact, data: Path) -> None:
    report = evaluate_artifact(two, data, EvaluationOptions(limit=2))
    assert {model.record.rows for model in report.models} == {2}


def test_each_model_gets_the_threads_asked_for(
    two: Artifact, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    class Watched(CpuSession):
        def __init__(self, path: Path, *, threads: int = 0, **options: Any) -> None:
            opened.append(threads)
            super().__init__(path, threads=threads, **options)

    monkeypatch.setattr("exporter.evaluation.evaluate.CpuSession", Watched)
    evaluate_artifact(two, data)
    evaluate_artifact(two, data, EvaluationOptions(threads=2))
    assert opened == [1, 1, 2, 2]


def test_texts_that_were_cut_are_told(tmp_path: Path, data: Path) -> None:
    artifact = make_artifact(tmp_path / "short", {"fp32": word_counter()}, limits={"sequence": 3})
    report = evaluate_artifact(artifact, data)
    assert report.notices == ("3 of 5 texts were cut to 3 tokens",)


def test_logits_that_are_not_finite_count_as_wrong_and_are_told(tmp_path: Path, data: Path) -> None:
    models = {"fp32": word_counter(), "fp16": word_counter(film=3e38)}  # infinity, twice
    report = evaluate_artifact(make_artifact(tmp_path / "inf", models), data)
    assert [model.record.correct for model in report.models] == [3, 2]
    assert report.notices == ("fp16: 1 of 5 texts gave no finite logits, which counts as wrong",)


def test_a_model_without_names_takes_the_labels_in_alphabetical_order(
    tmp_path: Path, data: Path
) -> None:
    artifact = make_artifact(tmp_path / "bare", {"fp32": word_counter()}, labels=None)
    report = evaluate_artifact(artifact, data)
    assert report.models[0].record.correct == 3
    assert report.truth.names == ("negative", "positive")
    assert "alphabetical order" in report.notices[0]


def test_the_only_matrix_is_taken_for_logits_whatever_its_name(tmp_path: Path, data: Path) -> None:
    artifact = make_artifact(tmp_path / "named", {"fp32": word_counter(output="scores")})
    assert evaluate_artifact(artifact, data).models[0].record.correct == 3


def test_a_model_of_fixed_shape_is_run_in_its_shape(tmp_path: Path, data: Path) -> None:
    shape = (2, 8)
    specs = [InputSpec(s.name, s.dtype, shape, s.role, s.upper) for s in (IDS, MASK)]
    artifact = make_artifact(tmp_path / "fixed", {"fp32": word_counter()}, specs=specs)
    report = evaluate_artifact(artifact, data)
    assert (report.models[0].record.rows, report.models[0].record.correct) == (5, 3)


def test_what_cannot_be_evaluated_is_one_clear_line(
    two: Artifact, tmp_path: Path, data: Path
) -> None:
    odd = tmp_path / "odd.csv"
    odd.write_text("text,label\ngood,positive\nbad,neutral\n")
    three = make_artifact(tmp_path / "three", {"fp32": word_counter()}, labels=("a", "b", "c"))
    for artifact, path, asked, message in (
        (two, data, ("int9",), r"two-onnx has no model 'int9'; it has: int8, fp32$"),
        (two, data, ("baseline",), r"baseline has weights drawn at random"),
        (two, odd, (), r"odd\.csv, line 3: the model knows no label 'neutral'; it has negative, "),
        (three, data, (), r"config\.json names 3 labels, but the logits have 2: a, b, c"),
    ):
        with pytest.raises(BenchmarkError, match=message) as caught:
            evaluate_artifact(artifact, path, EvaluationOptions(variants=asked))
        assert "\n" not in str(caught.value)


def test_a_label_the_model_does_not_know_is_told_before_the_long_run(
    two: Artifact, tmp_path: Path
) -> None:
    odd = tmp_path / "odd.csv"
    odd.write_text("text,label\ngood,positive\nbad,neutral\n")
    calls: list[int] = []
    with pytest.raises(BenchmarkError, match="neutral"):
        evaluate_artifact(two, odd, progress=lambda _variant, _total, done: calls.append(done))
    assert calls == []


@pytest.mark.parametrize(
    ("outputs", "body", "shapes"),
    [
        ("float[b, s, 1] hidden", "hidden = Unsqueeze (f, last)", "hidden [1, 3, 1]"),
        ("float[b, s] one, float[b, s] two", "one = Neg (f) two = Abs (f)", "one [1, 3], two"),
        ("int64[b, s] logits", "logits = Neg (input_ids)", "logits [1, 3]"),
    ],
)
def test_a_model_that_classifies_no_texts_is_refused(
    tmp_path: Path, data: Path, outputs: str, body: str, shapes: str
) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        other (int64[b, s] input_ids) => ({outputs}) <int64[1] last = {{2}}>
        {{ f = Cast <to = 1> (input_ids) {body} }}
    """)
    artifact = make_artifact(tmp_path / "other", {"fp32": model}, specs=[IDS])
    with pytest.raises(BenchmarkError, match=rf"classifies no texts: .*{re.escape(shapes)}"):
        evaluate_artifact(artifact, data)


def test_a_token_that_the_model_does_not_have_is_an_error(tmp_path: Path, data: Path) -> None:
    few = InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", 4)
    artifact = make_artifact(tmp_path / "few", {"fp32": word_counter()}, specs=[few, MASK])
    with pytest.raises(ExportError, match="holds id 5, outside the valid range 0 to 3"):
        evaluate_artifact(artifact, data)
