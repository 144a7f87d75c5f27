from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.benchmark import ResultsWriter, read_results
from exporter.errors import BenchmarkError
from exporter.records import to_json
from tests.benchmark.fakes import full_disk, measurement

FIRST, SECOND = measurement("fp32"), measurement("baseline")


def test_records_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsWriter(path) as writer:
        writer.write(FIRST)
        writer.write(SECOND)
    assert read_results(path) == (FIRST, SECOND)


def test_each_record_is_on_disk_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(number))
    path = tmp_path / "results.jsonl"
    with ResultsWriter(path) as writer:
        writer.write(FIRST)
        assert path.read_text() == to_json(FIRST) + "\n"
        assert len(synced) == 1


def test_a_file_that_exists_is_not_written_to_without_a_wish(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_json(FIRST) + "\n")
    with pytest.raises(BenchmarkError, match="exists; --resume continues it, --append adds"):
        ResultsWriter(path)
    with ResultsWriter(path, add=True) as writer:
        writer.write(SECOND)
    assert read_results(path) == (FIRST, SECOND)


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_a_last_line_that_was_cut_off_is_passed_over_and_gone_when_appending(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_json(FIRST) + "\n" + to_json(SECOND)[:-cut])
    notices: list[str] = []
    assert read_results(path, notices.append) == (FIRST,)
    assert notices == [f"{path} ends within line 2, which is passed over"]
    ResultsWriter(path, add=True).close()
    assert not path.read_bytes().endswith(b"\n")  # nothing written, nothing changed
    with ResultsWriter(path, add=True, notice=notices.append) as writer:
        writer.write(SECOND)
    assert read_results(path) == (FIRST, SECOND)
    assert notices[1:] == [f"{path}: its last line was cut off and is gone now"]


def test_a_whole_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_json(FIRST))
    notices: list[str] = []
    assert read_results(path, notices.append) == (FIRST,)
    assert notices == []
    with ResultsWriter(path, add=True) as writer:
        writer.write(SECOND)
    assert read_results(path) == (FIRST, SECOND)


@pytest.mark.parametrize("content", ["{}\n", "no record\n" + to_json(FIRST) + "\n"])
def test_a_file_of_something_else_is_refused_by_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(content)
    with pytest.raises(BenchmarkError, match="line 1: no valid record"):
        read_results(path)


def test_what_is_no_results_file_is_not_cut_when_appending(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes, without a last line break")
    with pytest.raises(BenchmarkError, match=r"notes\.txt holds something else than records"):
        ResultsWriter(path, add=True)
    assert path.read_text() == "my notes, without a last line break"


def test_a_file_that_nothing_was_written_to_is_not_left(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultsWriter(path).close()
    assert not path.exists()


def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BenchmarkError, match=r"cannot write .*: Not a directory"):
        ResultsWriter(tmp_path / "file" / "results.jsonl")


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(BenchmarkError, match="is no regular file; records go into one"):
            ResultsWriter(path, add=True)
    assert pipe.is_fifo()


@pytest.mark.parametrize("ends", ["\n", "", '\n{"kind": "measu'])
def test_where_there_is_no_room_the_file_keeps_the_whole_records_before(
    tmp_path: Path, ends: str
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_json(FIRST) + ends)
    with ResultsWriter(path, add=True) as writer:
        with full_disk(len(to_json(FIRST)) + 100), pytest.raises(BenchmarkError) as caught:
            writer.write(SECOND)
        assert str(caught.value) == (
            f"cannot write a record to {path}: File too large; those before it are whole; "
            "make room and run the command again"
        )
        assert path.read_text() == to_json(FIRST) + "\n"
        writer.write(SECOND)  # there is room again
    assert read_results(path) == (FIRST, SECOND)


def test_where_there_is_no_room_for_a_line_end_it_comes_with_the_next_record(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_json(FIRST))
    with ResultsWriter(path, add=True) as writer:
        with full_disk(len(to_json(FIRST))), pytest.raises(BenchmarkError):
            writer.write(SECOND)
        assert path.read_text() == to_json(FIRST)
        writer.write(SECOND)
    assert read_results(path) == (FIRST, SECOND)


def test_a_first_record_without_room_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsWriter(path) as writer, full_disk(20), pytest.raises(BenchmarkError):
        writer.write(FIRST)
    assert not path.exists()
