from __future__ import annotations

from typing import Any

import pytest

from exporter.benchmark import Bench, BenchmarkOptions, Run, Step
from exporter.records import Measurement
from tests.benchmark.fakes import FakeLauncher, Script, crash, run_of

SHORT = BenchmarkOptions(sessions=1, min_runs=2, min_seconds=0.0)


def bench(launcher: FakeLauncher, runs: list[Run], **changes: Any) -> Bench:
    values: dict[str, Any] = {"available": lambda: None, "clock": launcher.clock}
    return Bench(runs, launcher, SHORT, **(values | changes))


def test_every_case_becomes_a_record_and_cases_of_a_run_share_its_name() -> None:
    runs = [run_of("fp32", "baseline"), run_of("fp32", "baseline", sequence=16)]
    records = list(bench(FakeLauncher(), runs).records())
    assert [(r.case.variant, r.case.sequence, r.status) for r in records] == [
        ("fp32", 8, "measured"),
        ("baseline", 8, "measured"),
        ("fp32", 16, "measured"),
        ("baseline", 16, "measured"),
    ]
    assert records[0].run == records[1].run != records[2].run == records[3].run


def test_records_of_a_run_come_before_the_next_run_begins() -> None:
    launcher = FakeLauncher()
    records = bench(launcher, [run_of("fp32"), run_of("fp32", sequence=16)]).records()
    next(records)
    assert [what for what, _ in launcher.log].count("open") == 1


def test_a_runtime_that_is_missing_gives_records_and_a_notice_and_the_others_go_on() -> None:
    launcher = FakeLauncher(absent={"node": "Node is not installed"})
    runs = [run_of("fp32", "baseline", runtime="node"), run_of("fp32")]
    measuring = bench(launcher, runs)
    records = list(measuring.records())
    assert [(r.case.runtime, r.status, r.error) for r in records] == [
        ("node", "not run", "Node is not installed"),
        ("node", "not run", "Node is not installed"),
        ("cpu", "measured", None),
    ]
    assert measuring.notices == ["Node, 1 thread, 1×8: not run: Node is not installed"]


def test_a_failure_is_a_record_and_a_notice() -> None:
    launcher = FakeLauncher({"baseline": Script(opening=crash("std::bad_alloc"))})
    measuring = bench(launcher, [run_of("fp32", "baseline")])
    assert [r.status for r in measuring.records()] == ["measured", "failed"]
    assert measuring.notices == ["CPU, 1 thread, 1×8: baseline failed: std::bad_alloc"]


def test_an_interruption_comes_after_the_records_of_its_run() -> None:
    scripts = {"fp32": Script((5.0,) * 9 + (KeyboardInterrupt(),))}
    runs = [run_of("fp32"), run_of("fp32", sequence=16)]
    launcher = FakeLauncher(scripts)
    measuring = Bench(
        runs,
        launcher,
        BenchmarkOptions(sessions=1, min_runs=20, min_seconds=0.0),
        available=lambda: None,
        clock=launcher.clock,
    )
    found: list[Measurement] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(measuring.records())  # extend keeps what came before the exception
    assert [(r.flags, len(r.samples_ms)) for r in found] == [(("interrupted",), 4)]


def test_an_interruption_that_leaves_too_little_drops_the_case_and_says_so() -> None:
    launcher = FakeLauncher({"fp32": Script((5.0, KeyboardInterrupt()))})
    measuring = bench(launcher, [run_of("fp32")])
    with pytest.raises(KeyboardInterrupt):
        list(measuring.records())
    assert measuring.notices == ["CPU, 1 thread, 1×8: fp32 dropped, too few runs so far"]


def test_what_does_not_fit_into_memory_together_is_measured_in_groups() -> None:
    launcher = FakeLauncher()
    # each worker is expected to take 153.5 MB
    measuring = bench(launcher, [run_of("fp32", "int8", "baseline")], available=lambda: 400_000_000)
    records = list(measuring.records())
    assert [r.case.variant for r in records] == ["fp32", "baseline", "int8", "baseline"]
    assert records[0].run == records[1].run != records[2].run == records[3].run
    assert "measured in 2 groups" in measuring.notices[0]
    opened = [name for what, name in launcher.log if what == "open"]
    assert opened == ["fp32", "baseline", "int8", "baseline"]


def test_what_does_not_fit_alone_is_not_run() -> None:
    launcher = FakeLauncher()
    measuring = bench(launcher, [run_of("fp32")], available=lambda: 100_000_000)
    [record] = measuring.records()
    assert record.status == "not run"
    assert "needs about 0.2 GB of memory" in (record.error or "")
    assert launcher.log == []
    assert len(measuring.notices) == 1


def test_more_threads_than_cores_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.benchmark.measure.usable_cores", lambda: 1)
    runs = [run_of("fp32", threads=2, sequence=size) for size in (8, 16)]
    measuring = bench(FakeLauncher(), [*runs, run_of("fp32")])
    list(measuring.records())
    assert measuring.notices == [
        "2 threads asked for, and this process may use 1 core: "
        "these figures say nothing about 2 threads"
    ]


def test_progress_never_goes_back_and_ends_near_the_whole() -> None:
    steps: list[Step] = []
    launcher = FakeLauncher()
    runs = [run_of("fp32", "baseline", sequence=size) for size in (8, 12, 16)]
    list(bench(launcher, runs, progress=steps.append).records())
    assert all(0 <= step.done <= 1 for step in steps)
    assert steps[-1].done > steps[0].done
    assert steps[-1].remaining_s < steps[0].remaining_s
