from __future__ import annotations

from typing import Any

import msgspec
import pytest

from exporter.benchmark.outcome import Outcome, Stamp
from exporter.benchmark.run import RunProtocol
from exporter.errors import BenchmarkError, ExportError
from exporter.records import Check, Measurement, Memory, Times
from tests.benchmark.fakes import DEVICE, FakeLauncher, Script, crash, protocol, run_of
from tests.benchmark.fakes import arm as make_arm


def records(done: RunProtocol) -> dict[str, Measurement]:
    stamp = Stamp("run 1")
    return {o.arm.case.variant: o.record(stamp, lambda: DEVICE) for o in done.outcomes}


def measured(launcher: FakeLauncher, *variants: str, **options: Any) -> dict[str, Measurement]:
    done = protocol(launcher, *variants, **options)
    done.measure()
    return records(done)


def test_all_workers_are_open_before_any_runs_and_take_turns() -> None:
    launcher = FakeLauncher()
    measured(launcher, "fp32", "baseline", min_runs=3)
    assert launcher.log[:2] == [("open", "fp32"), ("open", "baseline")]
    runs = [name for what, name in launcher.log if what == "run"]
    assert runs == ["fp32", "baseline"] * 8  # five to warm up, three that count
    assert launcher.log[-2:] == [("close", "baseline"), ("close", "fp32")]


def test_every_other_session_goes_through_the_cases_backwards() -> None:
    launcher = FakeLauncher()
    measured(launcher, "fp32", "int8", sessions=2, min_runs=6)
    there, back = ["fp32", "int8"], ["int8", "fp32"]
    assert [name for what, name in launcher.log if what == "open"] == there + back
    runs = [name for what, name in launcher.log if what == "run"]
    assert runs == there * 8 + back * 8


def test_each_session_starts_fresh_workers_and_the_samples_tell_them_apart() -> None:
    launcher = FakeLauncher({"fp32": [Script((1.0,)), Script((2.0,)), Script((3.0,))]})
    record = measured(launcher, "fp32", sessions=3, min_runs=6)["fp32"]
    assert [what for what, _ in launcher.log].count("open") == 3
    assert record.samples_ms == (1.0, 1.0, 2.0, 2.0, 3.0, 3.0)
    assert record.session_runs == (2, 2, 2)


def test_runs_are_rounded_up_so_that_no_session_has_fewer() -> None:
    record = measured(FakeLauncher(), "fp32", sessions=3, min_runs=7)["fp32"]
    assert record.session_runs == (3, 3, 3)


def test_measuring_lasts_at_least_the_seconds_asked_for() -> None:
    launcher = FakeLauncher({"fp32": Script((125.0,))})
    record = measured(launcher, "fp32", min_runs=2, min_seconds=1.0)["fp32"]
    assert len(record.samples_ms) == 8


def test_the_first_worker_also_checks_outputs_and_opens_twice() -> None:
    launcher = FakeLauncher()
    one = make_arm("fp32")
    measured(launcher, "fp32", sessions=2)
    assert [task.warm_first for task in launcher.tasks] == [True, False]
    assert [task.sizes for task in launcher.tasks] == [one.sizes] * 2
    assert launcher.tasks[0].path == one.subject.path


def test_warming_up_goes_on_until_three_runs_in_a_row_are_alike() -> None:
    launcher = FakeLauncher({"fp32": Script((90.0, 80.0, 60.0, 40.0, 30.0, 20.0, 20.5, 21.0, 7.0))})
    record = measured(launcher, "fp32", min_runs=2)["fp32"]
    assert record.samples_ms == (7.0, 7.0)
    assert "unstable warm-up" not in record.flags


def test_all_are_kept_warm_until_the_last_is_steady() -> None:
    launcher = FakeLauncher({"baseline": Script((90.0, 80.0, 60.0, 40.0, 30.0, 20.0, 20.0, 20.0))})
    measured(launcher, "fp32", "baseline", min_runs=2)
    runs = [name for what, name in launcher.log if what == "run"]
    assert runs == ["fp32", "baseline"] * 10


def test_a_model_that_never_settles_is_measured_and_flagged() -> None:
    restless = [float(10 + 7 * (index % 2)) for index in range(200)]
    records = measured(FakeLauncher({"fp32": Script(restless)}), "fp32", "baseline", min_runs=4)
    assert len(records["fp32"].samples_ms) == 4
    assert "unstable warm-up" in records["fp32"].flags
    assert "unstable warm-up" not in records["baseline"].flags


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("the process ended with exit code 1", False),
        ("the process was ended by SIGKILL (out of memory?)", True),
        ("RangeError: WebAssembly.Memory(): could not grow", True),
        ("std::bad_alloc", True),
        ("no answer within 300 s; the process was ended", False),
    ],
)
def test_a_worker_that_cannot_open_is_a_record_and_the_others_go_on(
    text: str, memory: bool
) -> None:
    launcher = FakeLauncher({"baseline": Script(opening=crash(text))})
    records = measured(launcher, "fp32", "baseline", "int8", sessions=2)
    failed = records["baseline"]
    assert (failed.status, failed.error, failed.samples_ms) == ("failed", text, ())
    assert ("likely out of memory" in failed.flags) is memory
    assert [name for what, name in launcher.log if what == "open"].count("baseline") == 1
    for variant in ("fp32", "int8"):
        assert records[variant].status == "measured"
        assert len(records[variant].samples_ms) == 4


def test_a_worker_that_dies_while_measuring_keeps_its_samples_and_leaves_the_others_alone() -> None:
    launcher = FakeLauncher({"baseline": Script((5.0,) * 7 + (crash(),))})
    records = measured(launcher, "fp32", "baseline", min_runs=6)
    assert records["baseline"].status == "failed"
    assert records["baseline"].error == "the process ended with exit code 1"
    assert records["baseline"].samples_ms == (5.0, 5.0)
    assert len(records["fp32"].samples_ms) == 6
    closed = launcher.log.index(("close", "baseline"))
    assert ("run", "fp32") in launcher.log[closed:]  # what it held was freed at once


def test_a_worker_that_dies_while_warming_up_is_not_run_again() -> None:
    launcher = FakeLauncher({"baseline": Script((5.0, crash()))})
    records = measured(launcher, "fp32", "baseline")
    assert (records["baseline"].status, records["baseline"].samples_ms) == ("failed", ())
    assert records["fp32"].status == "measured"


def test_when_all_fail_no_further_session_is_started() -> None:
    launcher = FakeLauncher({"fp32": Script(opening=crash())})
    records = measured(launcher, "fp32", sessions=5)
    assert records["fp32"].status == "failed"
    assert [what for what, _ in launcher.log] == ["open"]


@pytest.mark.parametrize("error", [ExportError("wrong sizes"), OSError("no more processes")])
def test_errors_of_other_kinds_are_records_too(error: Exception) -> None:
    launcher = FakeLauncher({"fp32": Script(opening=error)})
    assert measured(launcher, "fp32", "int8")["fp32"].error == str(error)


def interrupted(launcher: FakeLauncher, **options: Any) -> RunProtocol:
    stopped = protocol(launcher, "fp32", "baseline", **options)
    with pytest.raises(KeyboardInterrupt):
        stopped.measure()
    return stopped


def test_an_interruption_keeps_whole_rounds_and_says_so() -> None:
    launcher = FakeLauncher({"baseline": Script((5.0,) * 9 + (KeyboardInterrupt(),))})
    stopped = records(interrupted(launcher, min_runs=20))
    for variant in ("fp32", "baseline"):
        assert len(stopped[variant].samples_ms) == 4  # fp32 had run once more
        assert stopped[variant].flags == ("interrupted",)
        assert stopped[variant].status == "measured"
    assert [what for what, _ in launcher.log].count("close") == 2


def test_an_interruption_keeps_the_sessions_before_it() -> None:
    scripts = [Script((5.0,)), Script((6.0, 6.0, KeyboardInterrupt()))]
    stopped = records(interrupted(FakeLauncher({"baseline": scripts}), sessions=2, min_runs=10))
    assert stopped["fp32"].session_runs == (5,)
    assert stopped["baseline"].samples_ms == (5.0,) * 5


def test_an_interruption_right_at_the_beginning_leaves_nothing_to_tell() -> None:
    for times in ((5.0, KeyboardInterrupt()), (5.0,) * 6 + (KeyboardInterrupt(),)):
        stopped = interrupted(FakeLauncher({"fp32": Script(times)}), min_runs=20)
        assert [outcome.samples_ms for outcome in stopped.outcomes] == [[], []]


def test_what_failed_before_an_interruption_stays_failed() -> None:
    scripts = {"fp32": Script((5.0,) * 9 + (KeyboardInterrupt(),)), "baseline": Script((crash(),))}
    stopped = records(interrupted(FakeLauncher(scripts), min_runs=20))
    assert stopped["baseline"].status == "failed"
    assert "interrupted" not in stopped["baseline"].flags


def test_a_machine_that_swapped_meanwhile_is_flagged() -> None:
    for pages, flagged in (((10, 5_000), True), ((10, 20), False), ((None, None), False)):
        counts = iter(pages)
        done = protocol(FakeLauncher(), "fp32")
        done.swapped = lambda counts=counts: next(counts)  # type: ignore[misc]
        done.measure()
        assert ("swapped" in records(done)["fp32"].flags) is flagged


def test_times_are_medians_over_sessions_and_memory_is_the_largest() -> None:
    scripts = [
        Script(
            opened={
                "times": Times(session_create=create, warm_first=warm),
                "memory": Memory(added_rss=added, peak_rss=peak),
                "check": check,
            }
        )
        for create, warm, added, peak, check in (
            (10.0, 4.0, 100, 6000, Check(status="passed", relative_error=1e-6)),
            (30.0, None, 300, 9000, Check()),
            (20.0, None, 200, 8000, Check()),
        )
    ]
    record = measured(FakeLauncher({"fp32": scripts}), "fp32", sessions=3)["fp32"]
    assert record.times == Times(session_create=20.0, warm_first=4.0)
    assert record.memory == Memory(added_rss=200, peak_rss=9000)
    assert record.check.status == "passed"


def test_flags_follow_from_the_figures() -> None:
    def flags(opened: dict[str, Any], times: tuple[float, ...] = (10.0,)) -> tuple[str, ...]:
        return measured(FakeLauncher({"fp32": Script(times, opened=opened)}), "fp32")["fp32"].flags

    coarse = {"device": msgspec.structs.replace(DEVICE, timer_resolution_ms=1.0)}
    assert flags({}) == ()
    assert flags(coarse) == ("coarse timer",)
    assert flags(coarse, (1000.0,)) == ()
    assert flags({"check": Check(status="failed", relative_error=1.0)}) == ("failed check",)
    assert flags({}, (10.0,) * 5 + (10.0, 20.0, 30.0, 40.0)) == ("spread",)
    assert flags({}, (10.0,) * 5 + (10.0, 10.5, 11.0, 11.5)) == ()


def test_threads_that_are_not_there_are_flagged() -> None:
    opened = {"threads_used": 1, "device": msgspec.structs.replace(DEVICE, usable_cores=1)}
    done = protocol(FakeLauncher({"fp32": Script(opened=opened)}), "fp32")
    done.run = run_of("fp32", threads=2)
    done.outcomes = [Outcome(done.run.arms[0])]
    done.measure()
    record = records(done)["fp32"]
    assert record.threads_used == 1
    assert record.flags == ("fewer threads", "too few cores")


def test_a_record_carries_the_label_and_the_command() -> None:
    done = protocol(FakeLauncher(), "fp32")
    done.measure()
    record = done.outcomes[0].record(
        Stamp("r", "my phone", "albert-export bench x"), lambda: DEVICE
    )
    assert (record.run, record.device.label, record.command) == (
        "r",
        "my phone",
        "albert-export bench x",
    )
    assert record.device.cpu == DEVICE.cpu


def test_progress_tells_the_run_the_step_and_a_share_that_grows() -> None:
    told: list[tuple[str, float]] = []
    done = protocol(FakeLauncher(), "fp32", "baseline", sessions=2, min_runs=4)
    done.tell = lambda text, share: told.append((text, share))
    done.measure()
    assert told[0] == ("CPU, 1 thread, 1×8: loading fp32 (1 of 2)", 0.0)
    assert {text.split(": ")[1].split(" (")[0] for text, _ in told} == {
        "loading fp32",
        "loading baseline",
        "warming up",
        "measuring",
    }
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 0.5 + 0.5 * (0.4 + 0.6 / 2)  # one of two rounds of the second session


def test_an_error_without_words_is_named_by_its_kind() -> None:
    outcome = Outcome(make_arm())
    outcome.fail(BenchmarkError())
    assert outcome.error == "BenchmarkError"
