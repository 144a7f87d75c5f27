from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from exporter.inspection import allowed_waste_bytes, failed_gates, inspect_path, parse_bytes
from tests.inspection.helpers import matrix
from tests.passes.helpers import build

IDLE = "main (float[1] x) => (float[1] y) { y = Neg(x) }"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("12000000", 12_000_000),
        ("12_000_000", 12_000_000),
        ("12MB", 12_000_000),
        ("12 mb", 12_000_000),
        ("12MiB", 12 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("2KiB", 2048),
        ("7B", 7),
    ],
)
def test_sizes_are_read_with_and_without_units(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "MB", "12 parsecs", "-3", "1e6", "12MB3", "_1", "1.MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no size; write 12000000, 12MB"):
        parse_bytes(text)


def test_a_thousandth_and_16_kib_of_copies_are_allowed() -> None:
    assert allowed_waste_bytes(0) == 16_384
    assert allowed_waste_bytes(1_000_000) == 17_384


def write(path: Path, size: int) -> Path:
    """Two equal rows of ``size`` numbers of 4 bytes."""
    weights = {"first": matrix(1, size), "second": matrix(1, size)}
    ir.save(build(IDLE, weights), path)
    return path


def test_copies_up_to_the_allowance_pass_and_more_fail(tmp_path: Path) -> None:
    few = inspect_path(write(tmp_path / "few.onnx", 4104), transfer=False)
    many = inspect_path(write(tmp_path / "many.onnx", 4105), transfer=False)
    assert few.models[0].wasted_bytes == allowed_waste_bytes(32_832) == 16_416
    assert failed_gates(few, require_shared=True) == ()
    (failure,) = failed_gates(many, require_shared=True)
    assert failure.endswith(
        "many.onnx is not shared: 16,420 of 32,840 stored bytes are copies, 16,416 allowed; "
        "the largest: first = second (16,420 bytes)"
    )
    assert failed_gates(many) == ()


def test_the_size_limit_counts_the_file_to_the_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", 4104)
    inspection = inspect_path(path, transfer=False)
    size = path.stat().st_size
    assert failed_gates(inspection, max_bytes=size) == ()
    (failure,) = failed_gates(inspection, max_bytes=size - 1)
    assert failure == f"{path} has {size:,} bytes, 1 more than the {size - 1:,} allowed"
