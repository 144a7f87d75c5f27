from __future__ import annotations

import pytest

from exporter.benchmark import BenchmarkOptions, Step
from exporter.benchmark.progress import Forecast
from tests.benchmark.fakes import Clock, run_of

OPTIONS = BenchmarkOptions(sessions=2, min_runs=10, min_seconds=6.0)
RUNS = [run_of("fp32", sequence=size) for size in (8, 12, 16)]
GUESS = 2 * (1.0 + 0.01) + 6.0  # two openings of a file of 1 MB, and six seconds


def test_before_anything_ran_the_options_tell_the_time() -> None:
    forecast = Forecast(RUNS, OPTIONS, clock=Clock())
    assert forecast.remaining_s() == pytest.approx(3 * GUESS)


def test_what_a_run_took_corrects_the_guess_for_the_others() -> None:
    clock = Clock()
    forecast = Forecast(RUNS, OPTIONS, clock=clock)
    forecast.begin(0)
    clock.now += 2 * GUESS
    forecast.end()
    assert forecast.remaining_s() == pytest.approx(2 * 2 * GUESS)


def test_within_a_run_its_own_pace_counts_the_more_the_further_it_is() -> None:
    clock, steps = Clock(), list[Step]()
    forecast = Forecast(RUNS[:1], OPTIONS, steps.append, clock)
    forecast.begin(0)
    clock.now += 30.0
    forecast.step("half", 0.5)
    assert steps[-1].remaining_s == pytest.approx(0.5 * 30 + 0.5 * 0)
    clock.now += 27.0
    forecast.step("nearly", 0.95)
    assert steps[-1].remaining_s == pytest.approx(0.95 * 3.0)
    assert steps[-1].done == pytest.approx(57 / (57 + 2.85))
    assert steps[-1].text == "nearly"


def test_nothing_is_left_after_the_last_run() -> None:
    forecast = Forecast(RUNS[:1], OPTIONS, clock=Clock())
    forecast.begin(0)
    forecast.end()
    assert forecast.remaining_s() == 0
