"""Reference vectors: what they hold, how they are read, and the check against them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.errors import ArtifactError
from exporter.inputs import Feeds
from exporter.reference import (
    REFERENCE_NAME,
    ReferenceCase,
    check_outputs,
    read_reference,
    reference_document,
)
from tests.pipeline.sources import export, save

CASE = ReferenceCase(
    "1x2",
    {"ids": np.array([[3, -4]], np.int64), "mask": np.array([[True, False]])},
    {"y": np.array([[[0.5, -0.0], [1e-40, 2.0]]], np.float32), "n": np.float32(7).reshape(())},
)


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_arrays_come_back_with_their_bits_types_and_shapes(tmp_path: Path) -> None:
    halves = ReferenceCase(
        "halves", {}, {"y": np.arange(6, dtype=np.float16).reshape(2, 3)[:, ::2]}
    )
    path = write(tmp_path / REFERENCE_NAME, reference_document([CASE, halves]))
    one, other = read_reference(path)
    assert (one.name, other.name) == ("1x2", "halves")
    for before, after in ((CASE, one), (halves, other)):
        for arrays, read in ((before.feeds, after.feeds), (before.outputs, after.outputs)):
            assert list(read) == list(arrays)
            for name, array in arrays.items():
                assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
                assert read[name].tobytes() == array.tobytes()


def test_bytes_are_little_endian_whatever_the_machine_and_base64() -> None:
    big = ReferenceCase("big", {"x": np.array([1, 2], ">i4")}, {})
    (case,) = reference_document([big])["cases"]
    assert case["inputs"]["x"] == {"dtype": "int32", "shape": [2], "data": "AQAAAAIAAAA="}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "has schema 2; this version reads 1; export the model again"),
        ({"cases": [{"name": "a"}]}, "cannot be read"),
        ({"cases": 3}, "cannot be read"),
        ({"cases": [{"name": "a", "inputs": {"x": {"dtype": "f4"}}, "outputs": {}}]}, "cannot"),
    ],
)
def test_another_schema_and_damage_are_errors_that_name_the_file(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / REFERENCE_NAME, reference_document([CASE]) | change)
    with pytest.raises(ArtifactError, match=message) as raised:
        read_reference(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "array",
    [
        {"dtype": "float32", "shape": [2], "data": "AAAA"},
        {"dtype": "float32", "shape": [1], "data": "AA!AAAA=="},
        {"dtype": "object", "shape": [1], "data": "AAAAAAAAAAA="},
        {"dtype": "word", "shape": [1], "data": "AAAAAA=="},
    ],
)
def test_an_array_that_is_not_what_it_says_is_an_error(
    tmp_path: Path, array: dict[str, Any]
) -> None:
    document = reference_document([CASE])
    document["cases"][0]["outputs"]["y"] = array
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_reference(write(tmp_path / REFERENCE_NAME, document))


@pytest.mark.parametrize("text", ["", "[]", "null", "\xff"])
def test_what_is_no_such_document_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / REFERENCE_NAME
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_reference(path)
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_reference(tmp_path / "missing.json")


# The check


def outputs(scale: float) -> dict[str, np.ndarray]:
    return {name: array * np.float32(scale) for name, array in CASE.outputs.items()}


def test_outputs_within_the_tolerance_pass_and_others_fail_with_their_error() -> None:
    seen: list[Feeds] = []

    def run(feeds: Feeds) -> dict[str, np.ndarray]:
        seen.append(feeds)
        return outputs(1.125)

    check = check_outputs([CASE, CASE], run, 0.2)
    assert (check.status, check.tolerance) == ("passed", 0.2)
    assert check.relative_error == pytest.approx(0.125)
    assert check.max_abs_error == pytest.approx(7 / 8)
    assert seen == [CASE.feeds, CASE.feeds]
    failed = check_outputs([CASE], run, 0.1)
    assert (failed.status, failed.relative_error) == ("failed", pytest.approx(0.125))


def test_outputs_that_cannot_be_compared_fail_without_a_number() -> None:
    without = {"y": CASE.outputs["y"]}
    assert check_outputs([CASE], lambda feeds: without, 0.1).status == "failed"
    nan = outputs(1.0) | {"y": np.full((1, 2, 2), np.nan, np.float32)}
    check = check_outputs([CASE], lambda feeds: nan, 0.1)
    assert (check.status, check.relative_error) == ("failed", None)


def test_without_cases_nothing_is_run() -> None:
    def run(feeds: Feeds) -> dict[str, np.ndarray]:
        raise AssertionError

    check = check_outputs([], run, 0.1)
    assert (check.status, check.relative_error) == ("not run", None)


# What an export puts in

WIDE = """main (float[batch,sequence,8] x) => (float[batch,sequence,WIDTH] y)
    { h = Tanh(x) y = Tile(h, times) }"""


def wide(folder: Path, copies: int, lead: str = "batch,sequence") -> Path:
    """A graph whose output has ``copies`` times the size of its input."""
    text = WIDE.replace("WIDTH", str(8 * copies)).replace("batch,sequence", lead)
    times = np.ones(lead.count(",") + 2, np.int64)
    times[-1] = copies
    return save(folder, text, {"times": times})


def test_cases_are_few_and_small_enough(tmp_path: Path) -> None:
    per_token = 4 * 8 * 220
    made = export(wide(tmp_path, 220), "fp32")
    cases = read_reference(made.folder / REFERENCE_NAME)
    # 1x17 would fit alone.
    assert [case.name for case in cases] == ["3x8", "1x1"]
    assert sum(case.outputs["y"].nbytes for case in cases) == (24 + 1) * per_token <= 256_000
    assert (24 + 17) * per_token > 256_000 > 17 * per_token
    assert (made.folder / REFERENCE_NAME).stat().st_size < 2 * 256_000


def test_where_even_the_smallest_is_too_large_there_is_no_file(tmp_path: Path) -> None:
    made = export(wide(tmp_path, 8_001, lead="batch"), "fp32")
    assert made.manifest["reference"] is None
    assert not (made.folder / REFERENCE_NAME).exists()
    assert REFERENCE_NAME not in made.manifest["files"]


def test_what_is_not_finite_is_no_reference(tmp_path: Path) -> None:
    text = "main (float[batch,8] x) => (float[batch,8] y) { z = Sub(x, x) y = Log(z) }"
    made = export(save(tmp_path, text, {}), "fp32")
    assert made.manifest["verdict"] == "passed"
    assert made.manifest["reference"] is None
