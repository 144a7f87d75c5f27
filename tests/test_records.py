from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.records import (
    SCHEMA_VERSION,
    Evaluation,
    Measurement,
    ModelFile,
    Record,
    RecordError,
    json_schema,
    parse_record,
    to_json,
)
from tests.benchmark.fakes import measurement


def evaluation(**changes: Any) -> Evaluation:
    values: dict[str, Any] = {
        "tool": "1.0",
        "created": "2026-01-31T12:00:00Z",
        "artifact": "demo",
        "variant": "int8",
        "model": ModelFile(path="onnx/model.onnx", sha256="0" * 64, file_bytes=10),
        "data": "test.tsv",
        "data_sha256": "1" * 64,
        "rows": 200,
        "correct": 150,
        "majority": 0.5,
        "interval_95": (0.68, 0.81),
    }
    return Evaluation(**(values | changes))


def values_of(record: Record) -> dict[str, Any]:
    return dict(json.loads(to_json(record)))


@pytest.mark.parametrize(
    "record",
    [
        measurement(),
        measurement(session_runs=(2, 3), flags=("spread", "swapped", "too few cores")),
        measurement(status="failed", error="it died", samples_ms=()),
        measurement(status="not run", error="no browser", samples_ms=()),
        evaluation(),
    ],
)
def test_a_record_reads_back_from_its_line(record: Record) -> None:
    line = to_json(record)
    assert "\n" not in line
    assert parse_record(line) == parse_record(line.encode()) == record
    assert json.loads(line)["schema"] == SCHEMA_VERSION


def test_figures_are_those_of_the_samples() -> None:
    record = measurement(samples_ms=(1.0, 2.0, 4.0, 8.0, 100.0))
    assert record.median_ms == 4.0
    assert record.p90_ms == pytest.approx(8 + 0.6 * 92)
    assert record.min_ms == 1.0
    assert record.mad_ms == 3.0  # deviations 3, 2, 0, 4, 96
    assert evaluation().accuracy == 0.75


def test_without_samples_there_are_no_figures() -> None:
    failed = measurement(status="failed", error="it died", samples_ms=())
    for figure in (failed.median_ms, failed.p90_ms, failed.min_ms, failed.mad_ms):
        assert figure != figure


@pytest.mark.parametrize("schema", [0, 1, 3, 99])
def test_another_schema_version_is_named(schema: int) -> None:
    line = json.dumps(values_of(measurement()) | {"schema": schema})
    with pytest.raises(RecordError, match=f"schema {schema}; this version reads 2"):
        parse_record(line)


@pytest.mark.parametrize("line", ["", "{", "[]", "null", '"text"', "[" * 100_000, "{}", b"\xff"])
def test_what_is_no_record_is_refused(line: str | bytes) -> None:
    with pytest.raises(RecordError, match="no valid record"):
        parse_record(line)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("samples_ms",), [1.0, -1.0], "samples_ms"),
        (("samples_ms",), [1.0, "2"], "samples_ms"),
        (("samples_ms",), [], "needs samples_ms"),
        (("session_runs",), [2, 2], "session_runs do not add up"),
        (("flags",), ["unknown flag"], "unknown flag"),
        (("status",), "done", "status"),
        (("status",), "failed", "needs an error"),
        (("created",), "yesterday", "created"),
        (("case", "threads"), 0, "threads"),
        (("case", "runtime"), "gpu", "runtime"),
        (("model", "sha256"), "abc", "sha256"),
        (("device", "cores"), -1, "cores"),
        (("device", "label"), "x" * 201, "label"),
        (("surprise",), 1, "surprise"),
    ],
)
def test_a_field_that_does_not_follow_the_schema_is_named(
    path: tuple[str, ...], value: object, message: str
) -> None:
    values = values_of(measurement())
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(RecordError, match=message):
        parse_record(json.dumps(values))


@pytest.mark.parametrize("field", ["tool", "created", "run", "case", "model", "device"])
def test_a_missing_field_is_named(field: str) -> None:
    values = values_of(measurement())
    del values[field]
    with pytest.raises(RecordError, match=field):
        parse_record(json.dumps(values))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    line = to_json(measurement(samples_ms=(1.5,))).replace("[1.5]", f"[{number}]")
    with pytest.raises(RecordError, match="no valid record"):
        parse_record(line)


def test_more_right_than_rows_is_refused() -> None:
    line = json.dumps(values_of(evaluation()) | {"correct": 201})
    with pytest.raises(RecordError, match="more correct labels than rows"):
        parse_record(line)


def test_other_tools_get_a_json_schema_of_both_kinds() -> None:
    schema = json_schema()
    assert {"Measurement", "Evaluation", "Device", "Case"} <= set(schema["$defs"])
    fields = schema["$defs"]["Measurement"]["properties"]
    assert set(fields) == {"kind", *Measurement.__struct_fields__}
