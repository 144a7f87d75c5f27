"""Errors in proportion to the reference, and the verdict on them."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest

from exporter.verification import CaseReport, compare, judge_relative, relative_errors

INF, NAN = float("inf"), float("nan")


def case(reference: object, candidate: object, name: str = "1x1", output: str = "y") -> CaseReport:
    one, other = (np.array(values, np.float32) for values in (reference, candidate))
    return compare(name, {output: one}, {output: other})


def test_an_error_is_the_length_of_the_difference_by_that_of_the_reference() -> None:
    assert relative_errors([case([3.0, 4.0], [3.0, 3.0])]) == {"y": pytest.approx(1 / 5)}


def test_cases_are_taken_together_so_that_a_quiet_one_does_not_decide_alone() -> None:
    loud, quiet = case([30.0, 40.0], [30.0, 40.0]), case([0.0], [1.0], "1x2")
    assert relative_errors([quiet]) == {"y": INF}
    assert relative_errors([loud, quiet]) == {"y": pytest.approx(1 / 50)}
    more = case([6.0, 8.0, 0.0], [6.0, 8.0, 2.0], "1x3")
    assert relative_errors([loud, quiet, more]) == {"y": pytest.approx(math.sqrt(5 / 2600))}


def test_outputs_have_errors_of_their_own_and_the_largest_counts() -> None:
    cases = (
        case([2.0], [1.0], output="a"),
        case([4.0], [3.0], output="b"),
    )
    assert relative_errors(cases) == {"a": 0.5, "b": 0.25}
    found = judge_relative(cases, 0.3)
    assert found.relative_error == 0.5
    assert found.verdict.reasons == ("a has a relative error of 0.5, more than 0.3",)


@pytest.mark.parametrize(
    ("reference", "candidate", "error"),
    [
        ([0.0, 0.0], [0.0, -0.0], 0.0),
        ([0.0, 0.0], [0.0, 1e-30], INF),
        ([1.0, NAN], [1.0, NAN], 0.0),
        ([1.0, NAN], [1.0, 1.0], INF),
        ([1.0, 1.0], [1.0, NAN], INF),
        ([1.0, INF], [1.0, INF], 0.0),
        ([1.0, INF], [1.0, -INF], INF),
        ([1.0, 2.0], [1.0, INF], INF),
        ([1.0, 2.0], [[1.0, 2.0]], INF),
        ([], [1.0], INF),
        ([], [], 0.0),
    ],
)
def test_zeros_and_numbers_that_are_not_finite(
    reference: list[float], candidate: list[float], error: float
) -> None:
    one = case(reference, candidate)
    assert relative_errors([one]) == {"y": error}
    verdict = judge_relative((one,), 1e6).verdict
    assert verdict.status == ("passed" if error == 0 else "failed")


def test_an_output_that_should_be_empty_is_no_error_to_be_averaged_away() -> None:
    empty, equal = case([], [1.0]), case([1.0], [1.0], "1x2")
    assert relative_errors([empty, equal]) == {"y": INF}


def test_what_is_not_finite_on_both_sides_makes_no_error_look_smaller() -> None:
    """Masked scores of minus infinity are no part of the reference's size."""
    plain = relative_errors([case([3.0, 4.0], [3.0, 3.0])])["y"]
    masked = relative_errors([case([3.0, 4.0, -INF, -INF], [3.0, 3.0, -INF, -INF])])["y"]
    assert masked == pytest.approx(plain)


def test_an_error_equal_to_the_tolerance_passes_and_a_larger_one_fails() -> None:
    one = case([4.0], [3.0])
    assert judge_relative((one,), 0.25).verdict.status == "passed"
    failed = judge_relative((one,), np.nextafter(0.25, 0)).verdict
    assert failed.status == "failed"
    assert failed.reasons == ("y has a relative error of 0.25, more than 0.25",)


def test_of_whole_numbers_so_large_a_share_may_differ() -> None:
    cases = (
        compare("1x3", {"ids": np.array([1, 2, 3])}, {"ids": np.array([1, 2, 9000])}),
        compare("1x1", {"ids": np.array([4])}, {"ids": np.array([4])}),
    )
    assert relative_errors(cases) == {"ids": 0.25}
    assert judge_relative(cases, 0.25).verdict.status == "passed"
    found = judge_relative(cases, 0.2)
    assert found.verdict.reasons == ("ids differs in 1 of 4 elements, 0.25 of them, more than 0.2",)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (record["relative_error"], record["top1_agreement"]) == (0.25, None)
    assert [case["outputs"][0]["differing"] for case in record["cases"]] == [1, 0]


def test_whole_numbers_of_another_shape_or_of_none_are_no_share() -> None:
    one, none = np.array([1]), np.zeros(0, np.int64)
    assert relative_errors([compare("1", {"ids": one}, {"ids": none})]) == {"ids": INF}
    assert relative_errors([compare("1", {"ids": none}, {"ids": none})]) == {"ids": 0.0}


def test_nothing_to_compare_is_a_failure() -> None:
    assert judge_relative((), 1.0).verdict.reasons == ("no case was run",)
    assert judge_relative((), 1.0).relative_error == INF
    missing = compare("1x1", {"a": np.ones(1)}, {"b": np.ones(1)})
    assert judge_relative((missing,), 1.0).verdict.reasons == (
        "1x1: output 'a' is missing",
        "1x1: output 'b' is not in the source",
    )


def test_another_shape_fails_by_name_and_by_an_infinite_error() -> None:
    found = judge_relative((case([[1.0, 2.0]], [1.0, 2.0]),), 1.0)
    assert found.verdict.reasons == (
        "1x1: y has shape [2], not [1, 2]",
        "y has a relative error of inf, more than 1",
    )
    assert found.to_dict()["relative_error"] is None


@pytest.mark.parametrize("tolerance", [INF, NAN, -0.1])
def test_a_tolerance_that_decides_nothing_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance must be a finite number of at least 0"):
        judge_relative((case([1.0], [1.0]),), tolerance)


def test_the_record_has_the_metrics_of_all_cases_together() -> None:
    cases = (
        case([[1.0, 2.0], [4.0, 3.0]], [[1.0, 2.0], [3.0, 4.0]], "2x2"),
        case([[0.0, 1.0]], [[0.0, 1.0]], "1x2"),
    )
    record = json.loads(json.dumps(judge_relative(cases, 0.5).to_dict(), allow_nan=False))
    assert (record["verdict"], record["tolerance"], record["atol"]) == ("passed", 0.5, None)
    assert record["relative_error"] == pytest.approx(math.sqrt(2 / 31))
    assert record["worst_abs_error"] == 1.0
    assert record["mean_abs_error"] == pytest.approx(2 / 6)  # by elements, not by cases
    assert record["cosine"] == pytest.approx((1 + 4 + 12 + 12) / 30)  # of the worst
    assert record["top1_agreement"] == pytest.approx((0.5 * 4 + 1 * 2) / 6)
    assert record["cases"][0]["outputs"][0]["rms"] == pytest.approx(math.sqrt(2 / 4))
    assert record["cases"][0]["outputs"][0]["rms_reference"] == pytest.approx(math.sqrt(30 / 4))


def test_any_mix_of_cases_gives_a_number_or_infinity() -> None:
    values = (0.0, 1.0, NAN, INF)
    for a, b, c, d in product(values, repeat=4):
        (error,) = relative_errors([case([a, c], [b, d]), case([c], [d], "2")]).values()
        assert error >= 0  # NaN is not
