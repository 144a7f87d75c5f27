from __future__ import annotations

import numpy as np
import pytest

from exporter.ratios import paired_ratio
from exporter.records import Measurement, Times
from exporter.report import figures
from exporter.report.figures import SEED, Setting, Spread, settings_of
from exporter.report.naming import DeviceNames, variant_name
from tests.report.making import LAPTOP, PHONE, measurement, trio


def settings(records: list[Measurement]) -> list[Setting]:
    return settings_of(records, DeviceNames(records))


def test_a_spread_is_that_of_the_samples() -> None:
    samples = np.random.default_rng(3).lognormal(1, 0.3, 101)
    spread = Spread.of(list(samples))
    assert spread.samples == 101
    assert spread.median == pytest.approx(np.median(samples))
    assert (spread.p10, spread.p90) == pytest.approx(np.percentile(samples, (10, 90)))
    assert (spread.low, spread.high) == (samples.min(), samples.max())
    assert spread.mad == pytest.approx(np.median(abs(samples - np.median(samples))))


def test_variants_of_one_run_form_a_setting_and_meet_the_baseline() -> None:
    (setting,) = settings(trio(int8=0.5))
    assert [row.name for row in setting.rows] == ["unshared fp32", "fp32", "int8"]
    row = setting.row("int8")
    assert row is not None
    assert [c.against for c in row.comparisons] == ["baseline", "fp32"]
    comparison = row.main
    assert comparison is not None and comparison.time is not None
    assert comparison.time.value == pytest.approx(0.5)
    assert comparison.verdict == "faster"
    assert comparison.file == pytest.approx(0.1)
    assert setting.rows[0].comparisons == ()


def test_an_unshared_model_of_the_same_precision_is_compared_with_too() -> None:
    records = [*trio(), measurement("baseline-int8", [6.0] * 40)]
    (setting,) = settings(records)
    row, other = setting.row("int8"), setting.row("baseline-int8")
    assert row is not None and other is not None
    assert [c.against for c in row.comparisons] == ["baseline", "baseline-int8", "fp32"]
    assert [c.against for c in other.comparisons] == ["baseline"]
    assert other.name == variant_name("baseline-int8") == "unshared int8"


def test_samples_of_different_runs_never_pair() -> None:
    records = [
        measurement("baseline", [10.0] * 8, run="monday"),
        measurement("int8", [5.0] * 8, run="tuesday", day="2026-03-02"),
    ]
    found = settings(records)
    assert [(s.run, s.date) for s in found] == [("monday", "2026-03-01"), ("tuesday", "2026-03-02")]
    assert all(row.comparisons == () for s in found for row in s.rows)


def test_ratios_rest_on_the_pairs_that_an_interruption_left() -> None:
    mine, its = [5.0, 6.0, 7.0, 5.5], [10.0, 11.0, 12.0, 13.0, 400.0, 400.0]
    (setting,) = settings([measurement("baseline", its), measurement("int8", mine)])
    comparison = setting.rows[1].comparisons[0]
    assert comparison.time == paired_ratio(mine, its[:4], SEED, [4])


def test_sessions_pair_with_each_other_and_not_across() -> None:
    base = measurement("baseline", [10.0, 10.0, 20.0, 20.0], session_runs=(2, 2))
    mine = measurement("int8", [5.0, 10.0, 10.0], session_runs=(1, 2))
    (setting,) = settings([base, mine])
    time = setting.rows[1].comparisons[0].time
    assert time is not None
    assert (time.value, time.pairs, time.sessions) == (pytest.approx(0.5), 3, 2)


def test_a_failed_baseline_leaves_no_ratio_but_a_reason() -> None:
    records = trio()
    records[0] = measurement("baseline", status="failed", error="killed")
    (setting,) = settings(records)
    comparison = setting.rows[2].comparisons[0]
    assert (comparison.time, comparison.missing) == (None, "unshared fp32 failed")
    assert comparison.verdict == "not known"
    assert comparison.file == pytest.approx(0.1)


def test_samples_of_no_time_give_no_ratio() -> None:
    (setting,) = settings([measurement("baseline", [1.0, 1.0]), measurement("int8", [0.0, 1.0])])
    comparison = setting.rows[1].comparisons[0]
    assert comparison.time is None
    assert comparison.missing is not None and "too coarse" in comparison.missing


def test_the_successful_record_of_a_resumed_case_counts() -> None:
    failed = measurement("int8", status="failed", error="crashed", day="2026-03-02")
    (setting,) = settings([measurement("int8", [3.0] * 3), failed])
    assert [row.measured for row in setting.rows] == [True]


def test_one_device_measured_twice_is_shown_twice_and_dated() -> None:
    records = [*trio(run="a"), *trio(run="b", day="2026-03-05")]
    assert [s.date for s in settings(records)] == ["2026-03-01", "2026-03-05"]
    same_day = settings([*trio(run="a"), *trio(run="b")])
    assert [s.date for s in same_day] == ["2026-03-01 10:00 UTC"] * 2


def test_workloads_and_devices_are_settings_of_their_own() -> None:
    records = [*trio(), *trio(sequence=16), *trio(threads=2), *trio(device=PHONE)]
    found = settings(records)
    assert [(s.title, str(s.workload).replace("\xa0", " ")) for s in found] == [
        ("Laptop, onnxruntime 1.27.0", "batch 1, sequence 16, 1 thread"),
        ("Laptop, onnxruntime 1.27.0", "batch 1, sequence 128, 1 thread"),
        ("Laptop, onnxruntime 1.27.0", "batch 1, sequence 128, 2 threads"),
        ("Phone, WASM in Chrome 140", "batch 1, sequence 128, 1 thread"),
    ]


def test_devices_that_read_alike_are_numbered() -> None:
    from msgspec.structs import replace

    twin = replace(LAPTOP, cpu="Core i7")
    records = [*trio(), *trio(device=twin, run="b"), *trio(device=PHONE, run="c")]
    names = DeviceNames(records)
    assert [names.name(d) for d in (LAPTOP, twin, PHONE)] == ["Laptop (D1)", "Laptop (D2)", "Phone"]
    clock = replace(PHONE, timer_resolution_ms=0.005)
    assert names.number(clock) == names.number(PHONE)


def test_intervals_are_given_to_the_newest_settings_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "MAX_BOOTSTRAPS", 1)
    old, new = settings([*trio(run="a"), *trio(run="b", day="2026-03-05")])
    known = [[c.interval_known for r in s.rows for c in r.comparisons] for s in (old, new)]
    assert known == [[False] * 3, [True] * 3]
    values = [[c.time.value for r in s.rows for c in r.comparisons if c.time] for s in (old, new)]
    assert values[0] == pytest.approx(values[1])
    assert {c.verdict for r in old.rows for c in r.comparisons} == {"not known"}


def test_load_and_memory_ratios_need_both_figures() -> None:
    base = measurement("baseline", times=Times(session_create=100.0))
    mine = measurement("int8", times=Times(session_create=25.0))
    (setting,) = settings([base, mine])
    assert setting.rows[1].comparisons[0].session == 0.25
    (setting,) = settings([base, measurement("int8", times=Times())])
    assert setting.rows[1].comparisons[0].session is None
