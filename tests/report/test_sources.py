from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from exporter.errors import BenchmarkError
from exporter.records import Measurement, to_json
from exporter.report.sources import MAX_LINE_BYTES, MAX_NOTICES, Notice, collect, read_source
from tests.report.making import LAPTOP, PHONE, evaluation, measurement


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_records_of_several_files_are_merged_in_order(tmp_path: Path) -> None:
    one, two = measurement("fp32"), measurement("fp32", device=PHONE)
    rate = evaluation("fp32", 900)
    a = write(tmp_path / "a.jsonl", to_json(one), "", to_json(rate))
    b = write(tmp_path / "b.jsonl", to_json(two))
    collected = collect([a, b])
    assert collected.records == (one, rate, two)
    assert collected.notices == ()


def test_a_record_that_occurs_twice_counts_once_and_that_is_said(tmp_path: Path) -> None:
    record = to_json(measurement())
    a, b = (write(tmp_path / name, record) for name in ("a.jsonl", "b.jsonl"))
    collected = collect([a, b])
    assert len(collected.records) == 1
    assert [notice.text for notice in collected.notices] == ["1 of 2 records were there already"]


def test_records_that_differ_in_a_sample_or_the_day_are_two(tmp_path: Path) -> None:
    records = [
        measurement(samples=(1.0, 2.0)),
        measurement(samples=(1.0, 2.5)),
        measurement(samples=(1.0, 2.0), day="2026-03-02"),
    ]
    path = write(tmp_path / "r.jsonl", *map(to_json, records))
    assert collect([path]).records == tuple(records)


def test_a_device_renamed_since_is_the_same_and_its_last_name_counts(tmp_path: Path) -> None:
    renamed = msgspec.structs.replace(LAPTOP, label="Test bench 3")
    path = write(tmp_path / "r.jsonl", to_json(measurement()), to_json(measurement(device=renamed)))
    (record,) = collect([path]).records
    assert isinstance(record, Measurement)
    assert record.device.label == "Test bench 3"


def test_bad_lines_are_skipped_with_file_line_and_reason(tmp_path: Path) -> None:
    good = to_json(measurement())
    path = write(tmp_path / "r.jsonl", "# notes", good, good.replace('"schema":2', '"schema":1'))
    with path.open("a", encoding="utf-8") as stream:
        stream.write(good[: len(good) // 2])
    collected = collect([path])
    assert len(collected.records) == 1
    wheres = [notice.where for notice in collected.notices]
    assert wheres == [f"{path}, line {n}" for n in (1, 3, 4)]
    assert "no valid record" in collected.notices[0].text
    assert "record has schema 1; this version reads 2" in collected.notices[1].text
    assert collected.notices[2].text.endswith("the file ends within this line")
    assert "ends within" not in collected.notices[1].text


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    line = to_json(measurement()).encode()
    path.write_bytes(
        b"\xef\xbb\xbf" + line + b"\r\n\r\n" + to_json(evaluation("fp32", 900)).encode()
    )
    collected = collect([path])
    assert len(collected.records) == 2
    assert collected.notices == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"\x00\x01\x02" * 50, b'{"a": 1}\n', b"[" * 100_000, "{}".encode("utf-16")],
    ids=["empty", "blank", "binary", "foreign", "nested", "utf-16"],
)
def test_a_file_without_any_record_is_an_error_that_names_it(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "none.jsonl"
    path.write_bytes(content)
    with pytest.raises(BenchmarkError, match=r"none\.jsonl holds no valid record"):
        collect([path])


def test_one_file_without_records_fails_even_beside_a_good_one(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", to_json(measurement()))
    bad = write(tmp_path / "bad.jsonl", "hello")
    with pytest.raises(BenchmarkError, match=r"bad\.jsonl holds no valid record"):
        collect([good, bad])


def test_a_line_too_long_is_skipped_whole_and_the_next_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", "x" * (MAX_LINE_BYTES * 2 + 7), to_json(measurement()))
    collected = collect([path])
    assert len(collected.records) == 1
    (notice,) = collected.notices
    assert notice == Notice(f"{path}, line 1", "skipped: longer than 8 MiB")


def test_many_bad_lines_are_counted_instead_of_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", to_json(measurement()), *["no"] * (MAX_NOTICES + 5))
    notices = collect([path]).notices
    assert len(notices) == MAX_NOTICES + 1
    assert notices[-1].text == "5 more lines skipped"


def test_a_folder_is_read_as_its_results_files_in_order(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", to_json(measurement("int8")))
    write(tmp_path / "a.jsonl", to_json(measurement("fp32")))
    write(tmp_path / "notes.txt", "no")
    found = [r.case.variant for r in read_source(tmp_path) if isinstance(r, Measurement)]
    assert found == ["fp32", "int8"]
