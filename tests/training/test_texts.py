from __future__ import annotations

from pathlib import Path

import pytest

from exporter.training.sources import DataError
from exporter.training.texts import read_texts


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "good film\n\n  bad, film \ngood film\n"),
        ("a.jsonl", '{"text": "good film"}\n\n{"text": "bad, film", "label": 0}\n'),
        ("a.csv", 'label,text\n1,good film\n0,"bad, film"\n'),
        ("a.tsv", "text\tlabel\r\ngood film\t1\r\nbad, film\t0\r\n"),
        ("a.csv", 'label;text\n1;good film\n0;"bad, film"\n'),
        ("a.ndjson", '{"text": "good film"}\n{"text": "bad, film"}\n'),
        ("a.txt", "\ufeffgood film\nbad, film"),
    ],
)
def test_each_form_gives_each_text_once_in_order(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert read_texts(path) == ["good film", "bad, film"]


def test_the_column_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"sentence": "so"}\n')
    assert read_texts(path, "sentence") == ["so"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\n \n", "a.txt holds no texts"),
        ("a.txt", b"x\xff", r"no UTF-8 text \(byte 1\)"),
        ("a.jsonl", b'{"text": "a"}\n{"body": "b"}\n', "a.jsonl, line 2: no 'text' among body"),
        ("a.jsonl", b'{"text": 3}\n', "a.jsonl, line 1: 'text' is 3, not text"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "a.jsonl, line 1: 'text' holds half a character"),
        ("a.jsonl", b"[]\n", "a.jsonl, line 1: no JSON object"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl, line 1: no JSON"),
        ("a.jsonl", b"{text\n", "a.jsonl, line 1: no JSON"),
        ("a.csv", b"body,label\nb,1\n", "a.csv, line 1: no 'text' among body, label"),
        ("a.csv", b"", "a.csv holds no examples"),
        ("a.csv", b'text\n"a"b\n', "a.csv, line "),
        ("a.csv", b"label,text\n1\n", "a.csv, line 2: 1 fields where"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_texts(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*a\.txt: No such file"):
        read_texts(tmp_path / "a.txt")
