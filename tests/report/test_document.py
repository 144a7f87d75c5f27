from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from exporter.records import Check, Measurement
from exporter.report import render_json
from tests.report.making import PHONE, evaluation, measurement, trio


def document(*records: Any, **options: Any) -> dict[str, Any]:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(render_json(records, **options), parse_constant=refuse)


def test_it_is_versioned_and_says_what_it_is() -> None:
    found = document(*trio(), command="albert-export report r.jsonl")
    assert (found["schema"], found["kind"]) == (1, "albert-export report")
    assert found["command"] == "albert-export report r.jsonl"
    assert found["commands"] == ["albert-export bench demo --out results.jsonl"]
    assert found["records"] == 3
    assert found["artifacts"][0]["headline"]["variant"] == "int8"


def test_figures_are_those_of_the_samples() -> None:
    records: list[Measurement] = trio(int8=0.5)
    (setting,) = document(*records)["artifacts"][0]["settings"]
    for row, record in zip(setting["variants"], records, strict=True):
        latency = row["latency_ms"]
        assert latency["median"] == pytest.approx(np.median(record.samples_ms))
        assert latency["mad"] == pytest.approx(record.mad_ms)
    ratio = setting["variants"][2]["comparisons"][0]
    assert ratio["against"] == "baseline"
    assert ratio["time"]["value"] == pytest.approx(0.5)
    assert ratio["time"]["low"] <= 0.5 <= ratio["time"]["high"]
    assert (ratio["time"]["pairs"], ratio["verdict"]) == (40, "faster")


def test_what_does_not_exist_is_null() -> None:
    failed = measurement("int8", status="failed", error="killed")
    found = document(measurement("baseline"), failed)
    row = found["artifacts"][0]["settings"][0]["variants"][1]
    assert row["latency_ms"] is None
    assert (row["status"], row["error"]) == ("failed", "killed")
    assert row["comparisons"][0]["time"] is None
    assert row["comparisons"][0]["missing"] == "int8 failed"


def test_outputs_that_are_no_numbers_have_no_error_to_tell() -> None:
    wrong = Check(status="failed", relative_error=math.nan, tolerance=0.01)
    found = document(measurement("int8", check=wrong))
    check = found["artifacts"][0]["settings"][0]["variants"][0]["check"]
    assert check == {**check, "status": "failed", "relative_error": None, "tolerance": 0.01}


def test_devices_evaluations_and_caveats_are_there() -> None:
    found = document(*trio(), *trio(device=PHONE, run="b"), evaluation("int8", 905))
    assert [(d["number"], d["label"], d["days"]) for d in found["devices"]] == [
        (1, "Laptop", ["2026-03-01"]),
        (2, "Phone", ["2026-03-01"]),
    ]
    assert found["artifacts"][0]["evaluations"][0]["accuracy"] == 0.905
    assert [doubt["name"] for doubt in found["doubts"]] == ["few processes"]
