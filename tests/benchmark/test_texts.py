"""Measuring on real texts, and models that leave early on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.artifact import Artifact
from exporter.benchmark import BenchmarkOptions, Run, plan_runs, remaining_runs
from exporter.benchmark.leaving_early import save_with_setting
from exporter.benchmark.outcome import Stamp
from exporter.benchmark.prepare import Prepared, prepare
from exporter.benchmark.run import RunProtocol
from exporter.benchmark.text_sample import TextSample, sample_texts
from exporter.comparisons import compared_with, opponents, work
from exporter.early_exit import RULES
from exporter.errors import BenchmarkError
from exporter.exit_setting import ExitSetting, calibrated_setting
from exporter.inputs import InputSpec
from exporter.ratios import paired_ratio, ratio
from exporter.records import LayersUsed, Measurement, Texts, parse_record, to_json
from exporter.runtimes.cpu import CpuSession
from tests.benchmark.fakes import DEVICE, FakeLauncher, Script, measurement, subject
from tests.evaluation.exits import LAYERS, calibrated, leaving_artifact
from tests.evaluation.helpers import MASK, word_counter
from tests.evaluation.helpers import make_artifact as make_counter

TEXTS = Texts(name="reviews.jsonl", sha256="ab" * 32, rows=3)
SETTING = ExitSetting(RULES["confidence"], 0.9, 6)


def sample(*lengths: int, texts: Texts = TEXTS) -> TextSample:
    """Texts of these lengths, whose ids are their numbers."""
    feeds = tuple({"input_ids": np.full((1, n), row)} for row, n in enumerate(lengths))
    return TextSample(texts, feeds, lengths)


def text_run(given: TextSample, *, artifact: str = "demo") -> Run:
    full = subject("int8", artifact, sample=given)
    early = replace(full, variant="int8-exit", leaves=SETTING)
    [run] = plan_runs([full, early], BenchmarkOptions())
    return run


def measured(launcher: FakeLauncher, given: TextSample, **options: Any) -> dict[str, Measurement]:
    chosen = BenchmarkOptions(**{"min_seconds": 0.0, "warm_up": 3, **options})
    done = RunProtocol(text_run(given), launcher, chosen, clock=launcher.clock, swapped=lambda: 0)
    done.measure()
    made = [outcome.record(Stamp("run 1"), lambda: DEVICE) for outcome in done.outcomes]
    return {record.case.variant: record for record in made}


LEAVING: dict[str, Script | list[Script]] = {
    "int8": Script((10.0,)),
    "int8-exit": Script((5.0,), layers={0: 1, 1: 2, 2: 6}),
}


def test_all_run_the_same_text_and_each_session_goes_on_where_the_last_one_ended() -> None:
    launcher = FakeLauncher(LEAVING)
    measured(launcher, sample(4, 9, 2), sessions=2, min_runs=4)
    assert launcher.texts == [
        ("int8", 0), ("int8-exit", 0), ("int8", 1), ("int8-exit", 1),
        ("int8-exit", 2), ("int8", 2), ("int8-exit", 0), ("int8", 0),
    ]  # fmt: skip


def test_the_longest_text_is_opened_with_and_warms_up() -> None:
    launcher = FakeLauncher(LEAVING)
    given = sample(4, 9, 2)
    measured(launcher, given, sessions=1, min_runs=2)
    assert [task.given for task in launcher.tasks] == [given.feeds[1]] * 2
    assert len([1 for what, _ in launcher.log if what == "run"]) == 2 * (3 + 2)
    assert len(launcher.texts) == 2 * 2


def test_a_record_tells_the_texts_and_the_layers_used() -> None:
    unlike = Script((5.0,) * 3 + (1.0, 1.0, 8.0), layers={0: 1, 1: 2, 2: 6})
    launcher = FakeLauncher({"int8": Script((8.0,)), "int8-exit": unlike})
    records = measured(launcher, sample(4, 9, 2), sessions=1, min_runs=3)
    full, early = records["int8"], records["int8-exit"]
    assert (full.case.texts, full.case.sequence, full.case.batch) == (TEXTS, 5, 1)
    assert full.layers is None
    assert early.layers == LayersUsed(
        setting="exit_threshold", value=0.9, mean=3.0, p90=pytest.approx(5.2), of=6
    )
    assert early.model == full.model
    assert parse_record(to_json(early)) == early
    assert ratio(early, full).value == pytest.approx(10 / 24)


def test_layers_of_a_round_that_was_cut_short_do_not_count() -> None:
    scripts = LEAVING | {"int8": Script((10.0,) * 6 + (KeyboardInterrupt(),))}
    done = RunProtocol(
        Run(text_run(sample(4, 9, 2)).arms[::-1]),  # the one that leaves early is ahead
        launcher := FakeLauncher(scripts),
        BenchmarkOptions(sessions=1, min_runs=30, warm_up=3),
        clock=launcher.clock,
        swapped=lambda: 0,
    )
    with pytest.raises(KeyboardInterrupt):
        done.measure()
    for outcome in done.outcomes:
        assert len(outcome.samples_ms) == 3
    assert done.outcomes[0].layers == [1, 2, 6]


def test_texts_of_unlike_length_are_no_doubtful_spread() -> None:
    scripts = {"int8": Script((10.0,) * 3 + (1.0, 5.0, 20.0)), "int8-exit": LEAVING["int8-exit"]}
    records = measured(FakeLauncher(scripts), sample(4, 9, 2), sessions=1, min_runs=3)
    assert records["int8"].flags == ()


def test_the_limit_counts_with_the_average_text_and_not_with_the_longest() -> None:
    scripts = {"int8": Script((1000.0,)), "int8-exit": LEAVING["int8-exit"]}
    options = {"sessions": 1, "min_runs": 20, "limit_s": 15.0}
    short = measured(FakeLauncher(scripts), sample(1, 10, 1), **options)["int8"]
    assert short.status == "measured"
    alike = measured(FakeLauncher(scripts), sample(10, 10, 10), **options)["int8"]
    assert (alike.status, alike.flags) == ("failed", ("too slow",))


def test_texts_are_compared_by_what_all_of_them_take() -> None:
    times, full = [1.0, 1.0, 8.0] * 4, [8.0] * 12
    assert paired_ratio(times, full).value == pytest.approx(1 / 8)
    of_sums = paired_ratio(times, full, of_sums=True)
    assert of_sums.value == pytest.approx(10 / 24)
    assert of_sums.low < 10 / 24 < of_sums.high
    halves = paired_ratio(times, full, session_runs=(6, 6), of_sums=True)
    assert (halves.value, halves.low) == (pytest.approx(10 / 24), pytest.approx(10 / 24))


def test_times_on_texts_and_on_random_ids_are_never_compared() -> None:
    on_ids = measurement("int8")
    on_texts = measurement("int8", case=text_run(sample(8)).arms[0].case)
    with pytest.raises(BenchmarkError, match="did not run the same texts"):
        ratio(on_texts, on_ids)


def test_a_model_that_leaves_early_is_compared_with_itself_first() -> None:
    assert opponents("int8-exit") == ("int8", "baseline", "baseline-int8", "fp32")
    assert opponents("fp32-exit") == ("fp32", "baseline", "baseline-fp32")
    cases = [arm.case for arm in text_run(sample(4)).arms]
    assert compared_with(cases[1], cases) == [cases[0]]


def test_artifacts_of_other_tokenizers_run_the_same_texts_in_one_run() -> None:
    subjects = [
        subject("fp32", "demo", sample=sample(4)), subject("fp32", "other", sample=sample(9)),
    ]  # fmt: skip
    [run] = plan_runs(subjects, BenchmarkOptions())
    assert [arm.case.sequence for arm in run.arms] == [4, 9]
    assert {work(arm.case) for arm in run.arms} == {TEXTS}
    assert run.title == "CPU, 1 thread, 3 texts of reviews.jsonl"


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, True),
        ({"value": 0.5}, False),
        ({"setting": "patience"}, False),
    ],
)
def test_another_setting_is_measured_again(changes: dict[str, Any], held: bool) -> None:
    run = text_run(sample(8))
    values: dict[str, Any] = {"setting": "exit_threshold", "value": 0.9, "mean": 1, "p90": 1}
    used = LayersUsed(**(values | changes), of=6)
    cases = [arm.case for arm in run.arms]
    records = [measurement("int8", case=cases[0]), measurement("int8", case=cases[1], layers=used)]
    found = remaining_runs(
        [run], records, BenchmarkOptions(min_runs=5, sessions=1), lambda a: DEVICE
    )
    assert (not found.runs) is held


def test_options_that_contradict_texts_are_refused() -> None:
    with pytest.raises(BenchmarkError, match="leave --seq out"):
        BenchmarkOptions(data=Path("d.csv"), sequences=(8,))
    with pytest.raises(BenchmarkError, match="--batch is 1"):
        BenchmarkOptions(data=Path("d.csv"), batches=(1, 4))


# --- from files


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return calibrated(leaving_artifact(tmp_path / "exit-onnx"), 0.9)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.jsonl"
    lines = [json.dumps({"text": "film " * n + "good", "body": "bad"}) for n in range(40)]
    path.write_text("\n".join(lines))
    return path


def prepared(artifact: Artifact, data: Path, work: Path, **options: Any) -> Prepared:
    chosen = BenchmarkOptions(data=data, min_runs=6, sessions=1, **options)
    return prepare([artifact.folder], chosen, FakeLauncher(), cache=work, work=work, transfer=False)


def test_the_sample_is_the_same_at_any_time_and_no_label_is_needed(
    artifact: Artifact, data: Path
) -> None:
    [first], [again] = (sample_texts([artifact], data, 6) for _ in range(2))
    assert first.texts.rows == len(first.feeds) == 6
    assert first.lengths == again.lengths
    assert first.lengths != tuple(sorted(first.lengths))
    assert set(first.lengths) < set(range(2, 42))
    assert first.feeds[0].keys() == {"input_ids", "attention_mask"}
    [everything] = sample_texts([artifact], data, 99)
    assert sorted(everything.lengths) == list(range(2, 42))
    [bodies] = sample_texts([artifact], data, 6, column="body")
    assert (bodies.lengths, bodies.texts.column) == ((2,) * 6, "body")


def test_texts_that_are_cut_are_told(tmp_path: Path, data: Path) -> None:
    made = make_counter(tmp_path / "counter", {"fp32": word_counter()}, limits={"sequence": 30})
    notices: list[str] = []
    sample_texts([made], data, 40, notice=notices.append)
    assert notices == ["counter: 11 of 40 texts were cut to 30 tokens"]


def test_a_model_that_takes_several_texts_at_once_is_refused(tmp_path: Path, data: Path) -> None:
    ids = InputSpec("input_ids", "int64", (2, "sequence"), "ids", 6)
    mask = replace(MASK, shape=(2, "sequence"))
    made = make_counter(tmp_path / "two", {"fp32": word_counter()}, specs=(ids, mask))
    with pytest.raises(BenchmarkError, match="takes 2 texts at a time"):
        sample_texts([made], data, 4)


def test_calibrated_models_get_an_arm_that_leaves_early(
    artifact: Artifact, data: Path, tmp_path: Path
) -> None:
    [run] = prepared(artifact, data, tmp_path / "work").runs
    assert [arm.case.variant for arm in run.arms] == ["fp32", "fp32-exit", "int8", "int8-exit"]
    full, early = run.arms[0].subject, run.arms[1].subject
    assert early.model == full.model
    assert early.path != full.path
    assert full.sample is early.sample
    plain = leaving_artifact(tmp_path / "plain")
    [run] = prepared(plain, data, tmp_path / "work").runs
    assert [arm.case.variant for arm in run.arms] == ["fp32", "int8"]


def test_on_random_ids_nothing_leaves_early(artifact: Artifact, tmp_path: Path) -> None:
    options = BenchmarkOptions(sequences=(4,))
    found = prepare(
        [artifact.folder], options, FakeLauncher(), cache=tmp_path, work=tmp_path, transfer=False
    )
    assert [arm.case.variant for arm in found.runs[0].arms] == ["fp32", "int8"]
    assert found.runs[0].arms[0].case.texts is None


def test_the_copy_leaves_as_the_file_does_with_the_setting(
    artifact: Artifact, data: Path, tmp_path: Path
) -> None:
    source = artifact.models()["int8"]
    setting = calibrated_setting(artifact, "int8")
    assert setting is not None
    pinned = CpuSession(save_with_setting(source, setting, tmp_path / "pinned.onnx"), threads=1)
    original = CpuSession(source, threads=1)
    [given] = sample_texts([artifact], data, 40)
    used = []
    for text in given.feeds:
        outputs, expected = pinned.run(text), original.run(text | setting.feeds)
        for name, value in expected.items():
            assert np.array_equal(outputs[name], value)
        used.append(int(outputs["layers_used"][0]))
    assert min(used) == 1 < max(used)
    assert int(original.run(given.feeds[0])["layers_used"][0]) == LAYERS


def test_texts_need_a_tokenizer(tmp_path: Path, data: Path) -> None:
    made = make_counter(tmp_path / "mute", {"fp32": word_counter()}, tokenizer=False)
    with pytest.raises(BenchmarkError, match=r"has no tokenizer\.json"):
        prepared(made, data, tmp_path / "work")
