from __future__ import annotations

from typing import Any

import msgspec
import pytest

from exporter.benchmark import BenchmarkOptions, Run, remaining_runs
from exporter.benchmark.resume import Remainder
from exporter.records import Measurement, ModelFile
from tests.benchmark.fakes import DEVICE, arm, measurement, run_of

OPTIONS = BenchmarkOptions(min_runs=5, sessions=1)


def remainder(
    runs: list[Run], records: list[Measurement], options: BenchmarkOptions = OPTIONS
) -> Remainder:
    return remaining_runs(runs, records, options, lambda arm: DEVICE)


def left(found: Remainder) -> list[list[str]]:
    return [[a.case.variant for a in run.arms] for run in found.runs]


def test_a_plan_that_the_file_holds_leaves_nothing() -> None:
    records = [measurement("fp32"), measurement("baseline")]
    found = remainder([run_of("fp32", "baseline")], records)
    assert left(found) == []
    assert list(found.held) == records
    assert found.again == 0


def test_only_what_is_missing_is_measured() -> None:
    runs = [run_of("fp32"), run_of("fp32", sequence=16)]
    found = remainder(runs, [measurement("fp32")])
    assert found.runs == (runs[1],)
    assert [record.case for record in found.held] == [arm("fp32").case]


def test_what_a_missing_case_is_compared_with_is_measured_again_beside_it() -> None:
    records = [measurement(variant) for variant in ("fp32", "int8", "baseline")]
    found = remainder([run_of("fp32", "int8", "int4", "baseline")], records)
    assert left(found) == [["fp32", "int4", "baseline"]]
    assert [record.case.variant for record in found.held] == ["int8"]
    assert found.again == 2


def other_device(**changes: Any) -> dict[str, Any]:
    return {"device": msgspec.structs.replace(DEVICE, **changes)}


@pytest.mark.parametrize(
    "changes",
    [
        {"case": arm("fp32", threads=2).case},
        {"model": ModelFile(path="onnx/fp32.onnx", sha256="0" * 64, file_bytes=1)},
        {"flags": ("interrupted",)},
        {"status": "not run", "error": "no browser", "samples_ms": ()},
        {"samples_ms": (1.0, 2.0, 3.0, 4.0)},
        other_device(cpu="Another CPU"),
        other_device(runtime_version="1.31"),
        other_device(usable_cores=1),
        other_device(engine="CPython 3.13"),
    ],
)
def test_a_record_of_something_else_or_less_does_not_count(changes: dict[str, Any]) -> None:
    assert left(remainder([run_of("fp32")], [measurement("fp32", **changes)])) == [["fp32"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed", "error": "out of memory", "samples_ms": ()},
        {"flags": ("spread",)},
        other_device(label="my laptop"),
    ],
)
def test_a_failure_and_another_label_count(changes: dict[str, Any]) -> None:
    assert left(remainder([run_of("fp32")], [measurement("fp32", **changes)])) == []


def test_fewer_sessions_than_asked_for_do_not_count() -> None:
    once, five = measurement("fp32"), measurement("fp32", session_runs=(1, 1, 1, 1, 1))
    options = BenchmarkOptions(min_runs=5, sessions=5)
    assert left(remainder([run_of("fp32")], [once], options)) == [["fp32"]]
    assert left(remainder([run_of("fp32")], [five], options)) == []


def test_a_running_engine_may_tell_more_of_its_version() -> None:
    record = measurement("fp32", **other_device(engine="CPython 3.12.4"))
    assert left(remainder([run_of("fp32")], [record])) == []


def test_of_several_records_the_last_that_is_whole_is_held() -> None:
    first = measurement("fp32", run="run 1")
    second = measurement("fp32", run="run 2")
    broken = measurement("fp32", run="run 3", flags=("interrupted",))
    assert remainder([run_of("fp32")], [first, second, broken]).held == (second,)
