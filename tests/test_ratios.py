from __future__ import annotations

import numpy as np
import pytest

from exporter.benchmark import paired_ratio, ratio
from exporter.errors import BenchmarkError
from exporter.ratios import block_length, student_quantile
from tests.benchmark.fakes import measurement


def noise(rng: np.random.Generator, runs: int, memory: float, spread: float = 0.08) -> np.ndarray:
    """Logarithms of ratios whose neighbours are correlated by ``memory``."""
    shocks = rng.standard_normal(runs + 50)
    series = np.zeros(runs + 50)
    for index in range(1, runs + 50):
        series[index] = memory * series[index - 1] + np.sqrt(1 - memory**2) * shocks[index]
    return spread * series[50:]


def coverage(runs: int, memory: float, *, sessions: int = 1, between: float = 0.0) -> float:
    """How often the 95 % interval of equal arms holds 1."""
    rng = np.random.default_rng(7)
    trials, held = 200, 0
    for _ in range(trials):
        parts = [
            noise(rng, runs, memory) + between * rng.standard_normal() for _ in range(sessions)
        ]
        series = np.exp(np.concatenate(parts))
        counts = [runs] * sessions if sessions > 1 else []
        found = paired_ratio(series, np.ones_like(series), session_runs=counts)
        held += found.low <= 1 <= found.high
    return held / trials


@pytest.mark.parametrize(("runs", "memory", "least"), [(20, 0.0, 0.91), (100, 0.6, 0.87)])
def test_the_interval_of_one_process_holds_the_truth_in_about_95_percent(
    runs: int, memory: float, least: float
) -> None:
    assert least <= coverage(runs, memory) <= 0.99


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_interval_of_several_processes_holds_the_truth_although_processes_differ(
    memory: float,
) -> None:
    assert 0.92 <= coverage(12, memory, sessions=5, between=0.02) <= 0.98


def test_one_long_process_would_promise_too_much_where_processes_differ() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(40):
        series = np.exp(noise(rng, 100, 0.0, 0.05) + 0.02 * rng.standard_normal())
        found = paired_ratio(series, np.ones_like(series))
        held += found.low <= 1 <= found.high
    assert held < 30


def test_equal_arms_on_a_drifting_machine_give_one() -> None:
    rng = np.random.default_rng(0)
    drift = np.linspace(10, 30, 60)  # the machine gets three times slower meanwhile
    first, second = (drift * np.exp(noise(rng, 60, 0.3, 0.02)) for _ in range(2))
    found = paired_ratio(first, second)
    assert found.low <= 1 <= found.high
    assert found.high - found.low < 0.05
    assert found.verdict == "no clear difference"


def test_a_slow_down_of_a_fifth_is_found() -> None:
    rng = np.random.default_rng(1)
    base = np.exp(noise(rng, 40, 0.3))
    slow = 1.2 * np.exp(noise(rng, 40, 0.3))
    for counts in ((), (8,) * 5):
        found = paired_ratio(slow, base, session_runs=counts)
        assert found.low <= 1.2 <= found.high
        assert found.verdict == "slower"
        assert paired_ratio(base, slow, session_runs=counts).verdict == "faster"


def test_the_value_of_one_process_is_the_median_of_the_ratios_of_pairs() -> None:
    found = paired_ratio([2.0, 8.0, 9.0], [1.0, 2.0, 1.0])
    assert found.value == pytest.approx(4.0)
    assert (found.pairs, found.sessions) == (3, 1)
    assert found.low <= found.value <= found.high


def test_the_value_of_several_processes_is_the_geometric_mean_of_their_medians() -> None:
    found = paired_ratio([2.0, 2.0, 8.0, 8.0, 8.0], [1.0] * 5, session_runs=[2, 3])
    assert found.value == pytest.approx(4.0)
    assert (found.pairs, found.sessions) == (5, 2)


def test_student_s_interval_is_the_textbook_s() -> None:
    # logarithms 1, 2, 3: mean 2, standard error 1/√3, quantile 4.3027 of two degrees
    logs = [1.0, 2.0, 3.0]
    found = paired_ratio(np.exp(logs), [1.0] * 3, session_runs=[1, 1, 1])
    half = 4.3027 / np.sqrt(3)
    assert np.log([found.low, found.high]) == pytest.approx([2 - half, 2 + half], rel=1e-4)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)],
)
def test_student_s_quantiles_are_those_of_tables(freedom: int, expected: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(expected, rel=2e-3)


def test_the_same_samples_give_the_same_interval_and_another_seed_another() -> None:
    samples = np.exp(noise(np.random.default_rng(2), 40, 0.5))
    ones = np.ones(40)
    assert paired_ratio(samples, ones, 5) == paired_ratio(samples, ones, 5)
    assert paired_ratio(samples, ones, 5) != paired_ratio(samples, ones, 6)


def test_blocks_grow_with_the_correlation_of_neighbours() -> None:
    rng = np.random.default_rng(4)
    lengths = [block_length(noise(rng, 400, memory)) for memory in (0.0, 0.5, 0.9)]
    assert lengths[0] <= 3
    assert lengths[0] < lengths[1] < lengths[2]
    assert block_length(np.ones(50)) == 1


def test_equal_samples_give_an_interval_of_no_width() -> None:
    found = paired_ratio([3.0] * 10, [2.0] * 10)
    assert (found.low, found.value, found.high) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize(
    ("candidate", "reference", "sessions", "message"),
    [
        ([], [], (), "0 and 0 samples make no pairs"),
        ([1.0], [1.0, 2.0], (), "1 and 2 samples make no pairs"),
        ([1.0, 0.0], [1.0, 1.0], (), "the clock is too coarse"),
        ([1.0, 1.0], [1.0, 1.0], (1,), "sessions of 1 runs for 2 samples"),
    ],
)
def test_what_makes_no_pairs_is_refused(
    candidate: list[float], reference: list[float], sessions: tuple[int, ...], message: str
) -> None:
    with pytest.raises(BenchmarkError, match=message):
        paired_ratio(candidate, reference, session_runs=sessions)


def test_measurements_compare_only_within_one_run() -> None:
    base = measurement("baseline", samples_ms=(2.0, 4.0, 8.0), session_runs=(2, 1))
    mine = measurement("fp32", samples_ms=(1.0, 2.0, 4.0), session_runs=(2, 1))
    assert ratio(mine, base).value == pytest.approx(0.5)
    assert ratio(mine, base).sessions == 2
    for other, message in (
        (measurement("baseline", samples_ms=(2.0, 4.0, 8.0), run="run 2"), "two runs"),
        (measurement("baseline", samples_ms=(2.0, 4.0, 8.0)), "the same sessions"),
        (measurement("baseline", status="failed", error="it died"), "baseline was not measured"),
    ):
        with pytest.raises(BenchmarkError, match=message):
            ratio(mine, other)
