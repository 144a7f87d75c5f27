from __future__ import annotations

import json
import os
from typing import Any

import onnxruntime
import pytest

from exporter.records import SCHEMA_VERSION, Device, Measurement, describe_device


def measurement(**changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "variant": "fp32",
        "file": "onnx/model.onnx",
        "file_bytes": 1234,
        "threads": 2,
        "batch": 3,
        "sequence": 128,
        "load_ms": 10.5,
        "first_ms": 3.25,
        "samples_ms": (1.0, 2.0, 4.0, 8.0, 100.0),
        "added_rss_bytes": 10_000,
        "device": Device("CPU", 4, "Linux x86_64", "onnxruntime", "1.0"),
    }
    return Measurement(**(values | changes))


def test_derived_figures_are_those_of_the_samples() -> None:
    record = measurement()
    assert record.median_ms == 4.0
    assert record.p90_ms == pytest.approx(8 + 0.6 * 92)
    assert record.spread == 3.0 / 4.0  # deviations 3, 2, 0, 4, 96


def test_a_clock_too_coarse_to_see_a_run_has_no_spread() -> None:
    assert measurement(samples_ms=(0.0, 0.0, 1.0)).spread == 0.0


@pytest.mark.parametrize("memory", [10_000, None])
def test_a_measurement_reads_back_from_its_line(memory: int | None) -> None:
    record = measurement(added_rss_bytes=memory)
    line = record.to_json()
    assert "\n" not in line
    values = json.loads(line)
    assert values["schema"] == SCHEMA_VERSION
    assert values["samples_ms"] == [1.0, 2.0, 4.0, 8.0, 100.0]
    assert (values["median_ms"], values["spread"]) == (4.0, 0.75)
    assert Measurement.from_dict(values) == record


@pytest.mark.parametrize("schema", [None, 0, 2, "1"])
def test_another_schema_is_refused(schema: object) -> None:
    values = json.loads(measurement().to_json()) | {"schema": schema}
    with pytest.raises(ValueError, match="this version reads 1"):
        Measurement.from_dict(values)


@pytest.mark.parametrize("field", ["variant", "file_bytes", "samples_ms", "device", "load_ms"])
def test_a_missing_field_is_refused_by_name(field: str) -> None:
    values = json.loads(measurement().to_json())
    del values[field]
    with pytest.raises(ValueError, match=f"measurement is incomplete: .*'{field}'"):
        Measurement.from_dict(values)


def test_an_incomplete_device_is_refused() -> None:
    values = json.loads(measurement().to_json())
    del values["device"]["cores"]
    with pytest.raises(ValueError, match=r"incomplete: .*'cores'"):
        Measurement.from_dict(values)


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")]])
def test_samples_that_give_no_figure_are_refused(samples: list[float]) -> None:
    values = json.loads(measurement().to_json()) | {"samples_ms": samples}
    with pytest.raises(ValueError, match="needs samples_ms, finite and at least one"):
        Measurement.from_dict(values)


def test_unknown_keys_are_passed_over() -> None:
    values = json.loads(measurement().to_json()) | {"colour": "red"}
    assert Measurement.from_dict(values) == measurement()


def test_the_device_is_this_machine_and_the_installed_runtime() -> None:
    device = describe_device("onnxruntime", "onnxruntime")
    assert device.runtime_version == onnxruntime.__version__
    assert device.cores == os.cpu_count()
    assert device.system.split()[0] == os.uname().sysname
    assert device.cpu
