"""What several sessions of one case come to."""

from __future__ import annotations

from exporter.benchmark.outcome import Outcome, Stamp
from exporter.records import Check, Measurement, Memory, Times
from exporter.runtimes.worker import Opened
from tests.benchmark.fakes import DEVICE, FakeLauncher, arm, protocol


def record(*opened: Opened, ended: tuple[Memory, ...] = ()) -> Measurement:
    outcome = Outcome(arm(), opened=[*opened], memories=[*ended])
    outcome.keep([1.0, 2.0])
    return outcome.record(Stamp("run 1"), lambda: DEVICE)


def opened(check: Check | None = None, **memory: int) -> Opened:
    return Opened(Times(), Memory(**memory), check or Check(), 1, DEVICE)


def passed(error: float) -> Check:
    return Check(status="passed", relative_error=error, tolerance=0.1)


def test_peaks_are_the_largest_of_beginning_and_end() -> None:
    first, second = opened(peak_rss=5, wasm_heap=16), opened(peak_rss=6, wasm_heap=16)
    grown = (Memory(peak_rss=9, wasm_heap=16), Memory(peak_rss=7, wasm_heap=48))
    found = record(first, second, ended=grown).memory
    assert (found.peak_rss, found.wasm_heap) == (9, 48)
    assert record(opened(peak_rss=8), ended=(Memory(peak_rss=7),)).memory.peak_rss == 8


def test_the_worst_check_of_all_sessions_counts() -> None:
    failed = Check(status="failed", relative_error=0.2, tolerance=0.1)
    assert record(opened(passed(1e-6)), opened(passed(1e-3))).check == passed(1e-3)
    assert record(opened(passed(1e-3)), opened(passed(1e-6))).check == passed(1e-3)
    assert record(opened(failed), opened(passed(0.0)), opened()).check == failed
    assert record(opened()).check.status == "not run"


def test_memory_is_read_again_at_the_end_of_a_session() -> None:
    done = protocol(FakeLauncher(), "fp32")
    done.measure()
    found = done.outcomes[0].record(Stamp("run 1"), lambda: DEVICE).memory
    assert (found.added_rss, found.peak_rss) == (1000, 7000)  # 5000 when it was open
