from __future__ import annotations

from typing import Any

import pytest

from exporter.benchmark import BenchmarkOptions, plan_runs
from exporter.benchmark.plan import run_sizes
from exporter.errors import BenchmarkError
from exporter.inputs import InputSpec, ModelInputs
from tests.benchmark.fakes import run_of, subject
from tests.samples import ids_inputs


def shapes(options: BenchmarkOptions, browsers: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    return [
        (c.runtime, c.browser, c.threads, c.batch, c.sequence)
        for run in plan_runs([subject()], options, browsers)
        for c in (run.arms[0].case,)
    ]


def test_cases_that_differ_in_the_file_alone_make_one_run() -> None:
    subjects = [subject("fp32"), subject("baseline"), subject("fp32", "other")]
    runs = plan_runs(subjects, BenchmarkOptions(threads=(1, 2), sequences=(8,)))
    assert [run.arms[0].case.threads for run in runs] == [1, 2]
    for run in runs:
        assert [(a.case.artifact, a.case.variant) for a in run.arms] == [
            ("demo", "fp32"),
            ("demo", "baseline"),
            ("other", "fp32"),
        ]
        assert [arm.sizes for arm in run.arms] == [{"batch": 1, "sequence": 8}] * 3


def test_every_runtime_browser_thread_count_batch_and_sequence_is_a_run() -> None:
    options = BenchmarkOptions(
        runtimes=("cpu", "browser"), threads=(1, 2), batches=(1, 4), sequences=(8, 16)
    )
    found = shapes(options, ("chromium", "firefox"))
    assert len(found) == len(set(found)) == 3 * 2 * 2 * 2
    assert found[0] == ("cpu", None, 1, 1, 8)
    assert {place[:2] for place in found} == {
        ("cpu", None),
        ("browser", "chromium"),
        ("browser", "firefox"),
    }


def test_without_a_sequence_it_is_the_maximum_but_at_most_128() -> None:
    assert shapes(BenchmarkOptions()) == [("cpu", None, 1, 1, 24)]
    for limit, expected in ((512, 128), (64, 64)):
        assert run_sizes(ids_inputs(100, limit), 1, None)[2] == expected


def test_a_sequence_beyond_the_maximum_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="sequence 25 is beyond the model's maximum 24"):
        plan_runs([subject()], BenchmarkOptions(sequences=(8, 25)))


def test_sizes_that_a_model_fixes_are_the_case_s_and_others_are_refused() -> None:
    fixed = ModelInputs((InputSpec("x", "float32", (2, 12, 8)),), {})
    assert run_sizes(fixed, 1, None) == ({}, 2, 12)
    assert run_sizes(fixed, 2, 12) == ({}, 2, 12)
    with pytest.raises(BenchmarkError, match="sequence 16 is not 12, which the model fixes"):
        run_sizes(fixed, 1, 16)
    with pytest.raises(BenchmarkError, match="batch 3 is not 2, which the model fixes"):
        run_sizes(fixed, 3, None)


def test_equal_sizes_that_a_model_fixes_make_one_run() -> None:
    fixed = ModelInputs((InputSpec("x", "float32", (2, 12, 8)),), {})
    runs = plan_runs([subject(inputs=fixed)], BenchmarkOptions(batches=(1, 2)))
    assert [len(run.arms) for run in runs] == [1]


def test_a_run_is_named_by_what_its_cases_share() -> None:
    assert run_of("fp32").title == "CPU, 1 thread, 1×8"
    browser = run_of("fp32", runtime="browser", browser="firefox", threads=2, batch=3)
    assert browser.title == "firefox, 2 threads, 3×8"


@pytest.mark.parametrize(
    "wrong",
    [{"threads": (0,)}, {"sequences": (8, 0)}, {"sessions": 0}, {"min_seconds": -1.0}],
)
def test_options_that_measure_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BenchmarkError, match="must be 1 or more"):
        BenchmarkOptions(**wrong)
