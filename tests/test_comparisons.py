from __future__ import annotations

import pytest

from exporter.benchmark import summarize
from exporter.benchmark.summary import precision_notices
from exporter.comparisons import compared_with, exit_name, exit_of, is_baseline, reference_name
from tests.benchmark.fakes import arm, measurement

EVERY = [
    arm(variant).case for variant in ("fp32", "int8", "baseline", "baseline-int8", "baseline-int4")
]


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("fp32", ["baseline"]),
        ("int8", ["baseline", "baseline-int8", "fp32"]),
        ("baseline", []),
        ("baseline-int8", ["baseline"]),
        ("int4", ["baseline", "baseline-int4", "fp32"]),
    ],
)
def test_a_variant_is_compared_with_the_unshared_models_and_with_fp32(
    variant: str, expected: list[str]
) -> None:
    assert [case.variant for case in compared_with(arm(variant).case, EVERY)] == expected


def test_a_second_artifact_is_also_compared_with_the_first() -> None:
    others = [arm("int8").case, arm("fp32").case, arm("int8", "rolled").case]
    second = arm("int8", "rolled").case
    found = compared_with(second, others)
    assert found == [arm("int8").case]
    assert reference_name(second, found[0]) == "demo int8"
    assert reference_name(arm("int8").case, arm("fp32").case) == "fp32"


def test_what_is_unshared_is_told_by_its_name() -> None:
    names = ("fp32", "baseline", "baseline-int8", "baselines")
    assert [is_baseline(name) for name in names] == [False, True, True, False]


def test_a_model_that_leaves_early_has_a_name_of_its_own() -> None:
    assert exit_name("int8") == "int8-exit"
    assert (exit_of("int8-exit"), exit_of("int8")) == ("int8", None)


def test_a_summary_has_the_figures_and_a_ratio_for_each_reference() -> None:
    base = measurement("baseline", samples_ms=(2.0, 4.0, 8.0), session_runs=(1, 1, 1))
    mine = measurement("fp32", samples_ms=(1.0, 2.0, 4.0), session_runs=(1, 1, 1))
    first, second = summarize([mine, base])
    assert set(first.ratios) == {"baseline"}
    assert first.ratios["baseline"].value == pytest.approx(0.5)
    assert second.ratios == {}
    values = first.to_dict()
    assert (values["median_ms"], values["min_ms"], values["mad_ms"]) == (2.0, 1.0, 1.0)
    assert values["p90_ms"] == pytest.approx(3.6)
    assert values["ratios"]["baseline"]["verdict"] == "faster"
    assert values["case"]["variant"] == "fp32"


def test_records_of_other_runs_and_failed_ones_give_no_ratio() -> None:
    mine = measurement("fp32")
    for other in (
        measurement("baseline", run="run 2"),
        measurement("baseline", status="failed", error="it died", samples_ms=()),
    ):
        assert summarize([mine, other])[0].ratios == {}
    failed = summarize([measurement(status="failed", error="it died", samples_ms=())])[0]
    assert failed.to_dict()["median_ms"] is None


def test_a_precision_that_is_slower_than_fp32_is_said_so() -> None:
    runs = {"session_runs": (2, 2)}
    fp32 = measurement("fp32", samples_ms=(10.0, 10.1, 10.0, 10.1), **runs)
    slow = measurement("int4", samples_ms=(20.0, 20.2, 20.0, 20.2), **runs)
    same = measurement("int8", samples_ms=(10.1, 10.0, 10.0, 10.1), **runs)
    notices = precision_notices(summarize([fp32, slow, same]))
    assert notices == ["demo: int4 is slower than fp32 (2.00×, 2.00–2.00): cpu, 1 thread(s), 1×8"]
