from __future__ import annotations

import pytest

from exporter.benchmark.memory_budget import (
    available_bytes,
    estimate_bytes,
    fit_run,
    swapped_pages,
)
from exporter.benchmark.plan import Arm
from tests.benchmark.fakes import arm, run_of

NEEDS = {"fp32": 100, "int8": 40, "int4": 30, "baseline": 700}


def need(one: Arm) -> int:
    return NEEDS[one.case.variant]


def groups(available: int | None, *variants: str) -> list[list[str]]:
    fitted = fit_run(run_of(*variants), available, need)
    return [[a.case.variant for a in run.arms] for run in fitted.runs]


@pytest.mark.parametrize("available", [None, 1088])
def test_what_fits_stays_one_run(available: int | None) -> None:
    run = run_of("fp32", "int8", "int4", "baseline")
    fitted = fit_run(run, available, need)
    assert fitted.runs == (run,)
    assert fitted.notices == ()
    assert fitted.too_large == ()


def test_what_does_not_fit_is_measured_in_groups_each_with_its_baseline() -> None:
    # 0.8 × 1050 = 840: the baseline and fp32 fit, and so do the baseline and the other two
    assert groups(1050, "fp32", "int8", "int4", "baseline") == [
        ["fp32", "int8", "baseline"],
        ["int4", "baseline"],
    ]
    # as well where the baseline comes first: it is in no group alone
    assert groups(1050, "baseline", "fp32", "int8", "int4") == [
        ["baseline", "fp32", "int8"],
        ["baseline", "int4"],
    ]
    fitted = fit_run(run_of("fp32", "int8", "int4", "baseline"), 1050, need)
    assert "measured in 2 groups" in fitted.notices[0]


def test_what_does_not_fit_beside_its_baseline_is_measured_without_a_ratio() -> None:
    # 0.8 × 900 = 720: the baseline fits alone
    assert groups(900, "fp32", "int8", "baseline") == [["fp32", "int8"], ["baseline"]]
    notices = fit_run(run_of("fp32", "int8", "baseline"), 900, need).notices
    assert any("no ratio for fp32, int8" in notice for notice in notices)


def test_what_does_not_fit_alone_is_not_run_and_the_others_are() -> None:
    fitted = fit_run(run_of("fp32", "int8", "baseline"), 800, need)
    assert [[a.case.variant for a in run.arms] for run in fitted.runs] == [["fp32", "int8"]]
    [(left, reason)] = fitted.too_large
    assert left.case.variant == "baseline"
    assert "of memory" in reason
    assert "swaps" in reason


def test_no_group_is_beyond_the_budget_whatever_the_memory() -> None:
    variants = ("fp32", "int8", "int4", "baseline")
    for available in range(10, 1300, 10):
        fitted = fit_run(run_of(*variants), available, need)
        seen = {a.case.variant for run in fitted.runs for a in run.arms}
        left = {one.case.variant for one, _ in fitted.too_large}
        assert seen | left == set(variants)
        assert not seen & left
        for run in fitted.runs:
            assert run.arms
            assert sum(map(need, run.arms)) <= 0.8 * available


def test_browsers_are_expected_to_take_more_than_processes() -> None:
    browser = arm("fp32", runtime="browser", browser="chromium")
    assert estimate_bytes(browser) > estimate_bytes(arm("fp32", runtime="node"))
    assert estimate_bytes(arm("fp32", runtime="node")) > estimate_bytes(arm("fp32"))
    assert estimate_bytes(arm("fp32")) > 3 * arm("fp32").subject.model.file_bytes


def test_linux_tells_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    found = available_bytes()
    assert found is not None
    assert 10_000_000 < found < 10**14
    assert (swapped_pages() or 0) >= 0
    monkeypatch.setattr("exporter.benchmark.memory_budget.sys.platform", "darwin")
    assert available_bytes() is None
