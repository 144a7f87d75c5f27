"""Cases that are too slow, and pages out of sight."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.benchmark import BenchmarkOptions
from exporter.benchmark.outcome import Stamp
from exporter.errors import BenchmarkError
from exporter.records import Measurement
from exporter.runtimes.line_process import NoAnswerError
from tests.benchmark.fakes import DEVICE, FakeLauncher, Script, protocol

SECOND = 1000.0


def measured(launcher: FakeLauncher, *variants: str, **options: Any) -> dict[str, Measurement]:
    done = protocol(launcher, *variants, **options)
    done.measure()
    stamp = Stamp("run 1")
    return {o.arm.case.variant: o.record(stamp, lambda: DEVICE) for o in done.outcomes}


def test_a_case_that_would_take_too_long_is_given_up_after_its_first_run() -> None:
    launcher = FakeLauncher({"baseline": Script((50 * SECOND,))})
    records = measured(launcher, "baseline", "fp32", sessions=2, min_runs=4, limit_s=100.0)
    slow = records["baseline"]
    assert (slow.status, slow.flags, slow.samples_ms) == ("failed", ("too slow",), ())
    # two sessions of five runs to warm up and two that count
    assert slow.error is not None
    assert slow.error.startswith(
        "given up: a run takes 50.0 s, so that this case would take 700 s, "
        "beyond the limit of 100 s"
    )
    assert launcher.log.count(("run", "baseline")) == 1
    assert slow.times.session_create == 20.0  # what was seen of it is kept
    assert launcher.log.index(("close", "baseline")) < launcher.log.index(("run", "fp32"))
    assert records["fp32"].session_runs == (2, 2)


@pytest.mark.parametrize(("limit_s", "status"), [(14.0, "measured"), (13.9, "failed")])
def test_the_limit_is_on_all_runs_of_a_case_together(limit_s: float, status: str) -> None:
    launcher = FakeLauncher({"fp32": Script((SECOND,))})
    records = measured(launcher, "fp32", "int8", sessions=2, min_runs=4, limit_s=limit_s)
    assert records["fp32"].status == status
    assert records["int8"].status == "measured"  # the time of others does not count


def test_a_slow_first_run_of_a_fast_model_is_no_reason() -> None:
    launcher = FakeLauncher({"fp32": Script((60 * SECOND, SECOND))})
    records = measured(launcher, "fp32", sessions=1, min_runs=2, limit_s=500.0)
    assert records["fp32"].status == "measured"


def test_warming_up_beyond_the_least_ends_after_some_seconds() -> None:
    restless = [SECOND * (1 + index % 2) for index in range(200)]
    launcher = FakeLauncher({"fp32": Script(restless)})
    record = measured(launcher, "fp32", min_runs=2)["fp32"]
    assert launcher.log.count(("run", "fp32")) == 14 + 2  # 14 last 21 seconds
    assert record.flags == ("spread", "unstable warm-up")
    launcher = FakeLauncher({"fp32": Script(restless)})
    measured(launcher, "fp32", min_runs=2, warm_up=17)
    assert launcher.log.count(("run", "fp32")) == 17 + 2


def test_opening_and_each_run_may_take_a_quarter_of_the_limit() -> None:
    launcher = FakeLauncher()
    measured(launcher, "fp32", limit_s=80.0)
    assert [task.timeout_s for task in launcher.tasks] == [20.0]


def test_a_worker_that_does_not_answer_is_too_slow_and_not_out_of_memory() -> None:
    error = NoAnswerError("model.onnx (first run): not done after 20 s; it was ended")
    launcher = FakeLauncher({"fp32": Script(opening=error), "int8": Script((5.0, error))})
    records = measured(launcher, "fp32", "int8")
    for variant in ("fp32", "int8"):
        assert records[variant].flags == ("too slow",)
        assert records[variant].error == str(error)


def test_a_page_that_was_out_of_sight_is_flagged() -> None:
    records = measured(FakeLauncher({"fp32": Script(was_hidden=True)}), "fp32", "int8")
    assert records["fp32"].flags == ("hidden tab",)
    assert records["int8"].flags == ()


@pytest.mark.parametrize("limit_s", [0.0, -1.0])
def test_a_limit_that_lets_nothing_run_is_refused(limit_s: float) -> None:
    with pytest.raises(BenchmarkError, match="limit must be more than 0 seconds"):
        BenchmarkOptions(limit_s=limit_s)
