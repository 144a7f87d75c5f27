from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from exporter.verification import CaseReport, OutputReport, compare, judge

INF, NAN = float("inf"), float("nan")


def array(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array(values, dtype)


def report(reference: np.ndarray, candidate: np.ndarray) -> OutputReport:
    case = compare("case", {"y": reference}, {"y": candidate})
    (output,) = case.outputs
    return output


def strict_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_metrics_are_the_ones_computed_by_hand() -> None:
    output = report(array(3.0, 4.0, 0.0), array(3.0, 3.0, 2.0))
    assert output.max_abs == 2.0
    assert output.mean_abs == 1.0
    assert output.max_rel == pytest.approx(2.0 / 1e-6)
    assert output.cosine == pytest.approx((9 + 12) / (5 * math.sqrt(22)))
    assert not output.bit_equal


def test_relative_difference_is_that_of_the_worst_element() -> None:
    assert report(array(10.0, -2.0), array(11.0, -1.0)).max_rel == 0.5


def test_top1_agreement_is_the_share_of_positions_with_the_same_largest_element() -> None:
    reference = np.array([[[1, 2], [3, 4]], [[5, 6], [8, 7]]], np.float32)
    candidate = np.array([[[1, 2], [4, 3]], [[5, 6], [7, 8]]], np.float32)
    assert report(reference, candidate).top1_agreement == 0.5
    assert report(array(1.0), array(2.0)).top1_agreement is None
    assert report(np.float32(1), np.float32(1)).top1_agreement is None


def test_equal_arrays_are_bit_equal_with_cosine_one() -> None:
    output = report(array(1.5, -2.5), array(1.5, -2.5))
    assert (output.max_abs, output.mean_abs, output.max_rel) == (0.0, 0.0, 0.0)
    assert output.cosine == pytest.approx(1.0)
    assert output.bit_equal


def test_minus_zero_is_no_difference_but_not_the_same_bits() -> None:
    output = report(array(0.0), array(-0.0))
    assert (output.max_abs, output.bit_equal) == (0.0, False)


@pytest.mark.parametrize(
    ("reference", "candidate", "difference"),
    [
        (NAN, NAN, 0.0),
        (INF, INF, 0.0),
        (-INF, -INF, 0.0),
        (INF, -INF, INF),
        (NAN, 1.0, INF),
        (1.0, NAN, INF),
        (INF, 1.0, INF),
        (1.0, -INF, INF),
        (NAN, INF, INF),
    ],
)
def test_only_the_same_nan_or_infinity_is_no_difference(
    reference: float, candidate: float, difference: float
) -> None:
    output = report(array(1.0, reference), array(1.0, candidate))
    assert output.max_abs == difference
    assert output.max_rel == difference
    assert output.nonfinite_reference == int(not math.isfinite(reference))
    assert output.nonfinite_candidate == int(not math.isfinite(candidate))
    assert output.cosine is None
    verdict = judge((CaseReport("case", (output,)),), 1e30).verdict
    assert verdict.status == ("passed" if difference == 0.0 else "failed")


def test_cosine_of_zeros_and_of_extreme_values_is_a_number() -> None:
    zeros = array(0.0, 0.0, dtype="float64")
    assert report(zeros, zeros).cosine == 1.0
    assert report(zeros, array(0.0, 1.0, dtype="float64")).cosine == 0.0
    for size in (1e-200, 1e200, 1.7e308):
        large = array(size, size, dtype="float64")
        assert report(large, large).cosine == pytest.approx(1.0)
        assert report(large, -large).cosine == pytest.approx(-1.0)


def test_another_type_of_equal_values_is_not_bit_equal() -> None:
    output = report(array(1.0, 2.0), array(1.0, 2.0, dtype="float64"))
    assert output.max_abs == 0.0
    assert not output.bit_equal


def test_the_same_bytes_of_another_type_are_not_bit_equal() -> None:
    output = report(np.zeros(3, np.float32), np.zeros(3, np.int32))
    assert (output.max_abs, output.bit_equal) == (0.0, False)


@pytest.mark.parametrize(
    ("reference", "candidate", "differing"),
    [
        (np.array([1, 5, 9]), np.array([1, 2, 9000]), 2),
        (np.array([1, 5]), np.array([1, 5], np.int32), 0),
        (np.array([True, False]), np.array([True, True]), 1),
        (np.array([2**60]), np.array([2**60 + 1]), 1),
        (np.array(7), np.array(8), 1),
        (np.zeros((2, 0), np.int64), np.zeros((2, 0), np.int64), 0),
    ],
)
def test_whole_numbers_and_truth_values_are_equal_or_not_and_have_no_magnitude(
    reference: np.ndarray, candidate: np.ndarray, differing: int
) -> None:
    output = report(reference, candidate)
    assert output.differing == differing
    assert (output.max_abs, output.mean_abs, output.rms, output.max_rel) == (None,) * 4
    assert (output.cosine, output.top1_agreement, output.largest) == (None,) * 3
    case = CaseReport("1x1", (output,))
    found = judge((case,), 1e30)
    if differing:
        reason = f"1x1: y differs in {differing} of {reference.size} elements"
        assert found.verdict.reasons == (reason,)
    else:
        assert found.verdict.status == "passed"
    assert (case.worst, found.to_dict()["worst_abs_error"]) == (0.0, 0.0)


def test_real_numbers_have_no_count_of_elements_that_differ() -> None:
    assert report(array(1.0), array(2.0)).differing is None
    assert report(np.array([1]), array(1.5)).differing is None
    assert report(np.array([1]), array(1.5)).max_abs == 0.5


def test_whole_numbers_of_another_shape_fail() -> None:
    case = compare("3x8", {"ids": np.array([1, 2])}, {"ids": np.array([[1, 2]])})
    assert (case.outputs[0].differing, case.worst) == (None, INF)
    assert judge((case,), 1.0).verdict.reasons == ("3x8: ids has shape [1, 2], not [2]",)


def test_arrays_without_elements_are_equal() -> None:
    empty = np.zeros((2, 0, 3), np.float32)
    output = report(empty, empty)
    assert (output.max_abs, output.mean_abs, output.max_rel) == (0.0, 0.0, 0.0)
    assert (output.cosine, output.top1_agreement, output.bit_equal) == (1.0, None, True)
    assert judge((CaseReport("case", (output,)),), 0.0).verdict.status == "passed"


def test_a_missing_and_an_extra_output_fail_by_name() -> None:
    case = compare("1x1", {"a": array(1), "b": array(1)}, {"a": array(1), "c": array(1)})
    assert (case.missing, case.extra, case.worst) == (("b",), ("c",), INF)
    verification = judge((case,), 1.0)
    assert verification.verdict.status == "failed"
    assert verification.verdict.reasons == (
        "1x1: output 'b' is missing",
        "1x1: output 'c' is not in the source",
    )


def test_another_shape_fails_even_where_it_would_broadcast() -> None:
    case = compare("3x8", {"y": np.zeros((2, 3))}, {"y": np.zeros((1, 3))})
    output = case.outputs[0]
    assert (output.max_abs, output.mean_abs, output.max_rel, output.cosine) == (None,) * 4
    assert case.worst == INF
    assert judge((case,), 1.0).verdict.reasons == ("3x8: y has shape [1, 3], not [2, 3]",)


def test_no_case_and_no_output_show_nothing_and_fail() -> None:
    assert judge((), 1.0).verdict.reasons == ("no case was run",)
    assert judge((), 1.0).worst == INF
    nothing = compare("1x1", {}, {})
    assert nothing.worst == INF
    assert judge((nothing,), 1.0).verdict.reasons == ("1x1: there is no output to compare",)


def test_a_difference_equal_to_the_tolerance_passes_and_a_larger_one_fails() -> None:
    case = compare("1x1", {"y": array(1.0)}, {"y": array(1.25)})
    assert judge((case,), 0.25).verdict.status == "passed"
    failed = judge((case,), np.nextafter(0.25, 0.0)).verdict
    assert failed.status == "failed"
    assert failed.reasons == ("1x1: y (up to 1) differs by 0.25, more than 0.25",)


@pytest.mark.parametrize("atol", [INF, NAN, -1e-5])
def test_a_tolerance_that_decides_nothing_is_refused(atol: float) -> None:
    case = compare("1x1", {"y": array(1.0)}, {"y": array(NAN)})
    with pytest.raises(ValueError, match="atol must be a finite number of at least 0"):
        judge((case,), atol)


def test_one_bad_case_among_good_ones_fails_the_file() -> None:
    good = compare("1x1", {"y": array(1.0)}, {"y": array(1.0)})
    bad = compare("1x17", {"y": array(1.0)}, {"y": array(2.0)})
    verification = judge((good, bad, good), 1e-5)
    assert verification.verdict.reasons == ("1x17: y (up to 1) differs by 1, more than 1e-05",)
    assert verification.worst == 1.0


def test_the_record_is_valid_json_whatever_the_numbers() -> None:
    cases = (
        compare("nan", {"y": array(NAN, 1.0)}, {"y": array(1.0, 1.0)}),
        compare("inf", {"y": array(INF, 1.0)}, {"y": array(-INF, 1.0)}),
        compare("shape", {"y": array(1.0)}, {"y": array(1.0, 2.0)}),
        compare("missing", {"y": array(1.0)}, {}),
        compare(
            "huge", {"y": array(1e308, dtype="float64")}, {"y": array(-1e308, dtype="float64")}
        ),
    )
    record = strict_json(judge(cases, 1e-5).to_dict())
    assert record["verdict"] == "failed"
    assert record["worst_abs_error"] is None
    assert [case["worst_abs_error"] for case in record["cases"]] == [None] * 5
    assert record["cases"][2]["outputs"][0]["candidate_shape"] == [2]
    assert record["cases"][3]["missing"] == ["y"]


def test_the_record_of_a_pass_holds_every_metric() -> None:
    case = compare("1x1", {"y": array(1.0, 2.0)}, {"y": array(1.0, 2.5)})
    record = strict_json(judge((case,), 1.0).to_dict())
    assert (record["verdict"], record["reasons"], record["atol"]) == ("passed", [], 1.0)
    assert record["worst_abs_error"] == 0.5
    (output,) = record["cases"][0]["outputs"]
    assert output["max_abs"] == 0.5
    assert output["mean_abs"] == 0.25
    assert output["max_rel"] == 0.25
    assert output["top1_agreement"] == 1.0
    assert output["shape"] == [2]
    assert output["bit_equal"] is False
