from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import msgspec
import pytest

from exporter.benchmark import Subject, choose_subjects, with_wire_bytes
from exporter.transfer import TransferBytes
from tests.benchmark.artifacts import make_artifact


@pytest.fixture
def subjects(tmp_path: Path) -> list[Subject]:
    return choose_subjects([make_artifact(tmp_path / "demo", "fp32", "baseline")])


class Counting:
    """Compresses nothing, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, files: Sequence[Path], progress: Callable[[str], None]) -> TransferBytes:
        self.asked.append(files[0].parent.name)
        progress("compressing")
        return TransferBytes(brotli_bytes=7, gzip_bytes=9)


def test_bytes_on_the_wire_are_those_of_gzip_and_brotli(
    subjects: list[Subject], tmp_path: Path
) -> None:
    fp32 = with_wire_bytes(subjects, tmp_path / "cache")[0]
    content = fp32.path.read_bytes()
    assert fp32.model.brotli_bytes == len(brotli.compress(content, quality=5))
    assert fp32.model.gzip_bytes == len(gzip.compress(content, 6))
    assert fp32.model.file_bytes == len(content)


def test_a_file_is_compressed_once_and_remembered_by_its_content(
    subjects: list[Subject], tmp_path: Path
) -> None:
    counting, told = Counting(), list[str]()
    for _ in range(2):
        found = with_wire_bytes(subjects, tmp_path, measure=counting, progress=told.append)
        assert [s.model.brotli_bytes for s in found] == [7, 7]
        assert [s.model.gzip_bytes for s in found] == [9, 9]
    assert counting.asked == ["onnx", "baseline"]
    assert told == ["demo fp32: compressing", "demo baseline: compressing"]


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", json.dumps({"brotli_bytes": 1, "gzip_bytes": 1, "brotli_quality": 11})],
)
def test_what_was_remembered_otherwise_is_measured_again(
    subjects: list[Subject], tmp_path: Path, content: str
) -> None:
    counting = Counting()
    with_wire_bytes(subjects[:1], tmp_path, measure=counting)
    [remembered] = (tmp_path / "transfer").iterdir()
    remembered.write_text(content)
    with_wire_bytes(subjects[:1], tmp_path, measure=counting)
    assert len(counting.asked) == 2


def test_a_large_baseline_is_left_out_unless_asked_for_and_said_so(
    subjects: list[Subject], tmp_path: Path
) -> None:
    large = [
        replace(s, model=msgspec.structs.replace(s.model, file_bytes=358_600_000)) for s in subjects
    ]
    counting, notices = Counting(), list[str]()
    found = with_wire_bytes(large, tmp_path, measure=counting, notice=notices.append)
    assert counting.asked == ["onnx"]  # a large model that is no baseline is what one ships
    assert [s.model.gzip_bytes for s in found] == [9, None]
    assert len(notices) == 1
    assert "baseline (359 MB) is not compressed" in notices[0]
    found = with_wire_bytes(large, tmp_path, measure=counting, all_sizes=True)
    assert [s.model.gzip_bytes for s in found] == [9, 9]


def test_a_cache_that_cannot_be_written_is_no_fault(
    subjects: list[Subject], tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    found = with_wire_bytes(subjects, blocked, measure=Counting())
    assert found[0].model.gzip_bytes == 9
