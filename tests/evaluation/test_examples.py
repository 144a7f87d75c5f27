from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import BenchmarkError
from exporter.evaluation.examples import Example, read_examples


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder: Path, name: str, content: str | bytes) -> tuple[Example, ...]:
    return read_examples(write(folder, name, content)).rows


def test_json_lines_give_texts_labels_and_lines(tmp_path: Path) -> None:
    content = '{"text": "a\\nb", "label": "x", "more": []}\n\n{"label": 1, "text": " c "}\r\n'
    found = read_examples(write(tmp_path, "d.jsonl", content))
    assert found.rows == (Example("a\nb", "x", 1), Example(" c ", "1", 3))
    assert found.name == "d.jsonl"
    assert found.sha256 == hashlib.sha256(content.encode()).hexdigest()


def test_line_separators_within_a_json_string_do_not_end_a_line(tmp_path: Path) -> None:
    rows = read(tmp_path, "d.jsonl", '{"text": "a\u2028b\x85c", "label": "x"}\n')
    assert rows == (Example("a\u2028b\x85c", "x", 1),)


@pytest.mark.parametrize(
    ("written", "label"),
    [("true", "true"), ("false", "false"), ("2", "2"), ("1.0", "1"), ('" neg "', "neg")],
)
def test_labels_are_names_numbers_or_truth_values(tmp_path: Path, written: str, label: str) -> None:
    assert read(tmp_path, "d.jsonl", f'{{"text": "t", "label": {written}}}')[0].label == label


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt"])
def test_the_header_tells_the_delimiter_whatever_the_texts_hold(
    tmp_path: Path, delimiter: str, suffix: str
) -> None:
    lines = [["id", "label", "text"], ["1", "x", "a, b; c\td"], ["2", "y", 'say "so"\nagain']]
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter).writerows(lines)
    rows = read(tmp_path, f"d.{suffix}", buffer.getvalue() + "\n\n" + delimiter.join("3zc"))
    assert rows == (
        Example("a, b; c\td", "x", 2),
        Example('say "so"\nagain', "y", 3),
        Example("c", "z", 7),  # the text above takes two lines, and two are blank
    )


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    for name, content in (
        ("d.csv", "text,label\na,x\n"),
        ("d.jsonl", '{"text": "a", "label": "x"}'),
    ):
        assert read(tmp_path, name, b"\xef\xbb\xbf" + content.encode())[0].text == "a"


def test_a_file_of_another_name_is_json_lines_if_it_starts_like_it(tmp_path: Path) -> None:
    assert read(tmp_path, "d.txt", '\n{"text": "a", "label": "x"}') == (Example("a", "x", 2),)


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    for path in (
        write(tmp_path, "d.csv", "sentence;class;text\na;x;no\n"),
        write(tmp_path, "d.jsonl", '{"sentence": "a", "class": "x", "text": "no"}'),
    ):
        found = read_examples(path, text_column="sentence", label_column="class")
        assert (found.rows[0].text, found.rows[0].label) == ("a", "x")


def test_a_limit_spreads_over_the_file(tmp_path: Path) -> None:
    content = "".join(f'{{"text": "t{i}", "label": "{i // 5}"}}\n' for i in range(10))
    path = write(tmp_path, "d.jsonl", content)
    assert [row.text for row in read_examples(path, limit=4).rows] == ["t0", "t2", "t5", "t7"]
    assert len(read_examples(path, limit=10).rows) == len(read_examples(path, limit=99).rows) == 10


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(str.strip),
            st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(str.strip),
        ),
        min_size=1,
    ),
    st.sampled_from([",", ";", "\t"]),
)
def test_every_text_comes_back_from_both_forms(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], delimiter: str
) -> None:
    folder = tmp_path_factory.mktemp("data")
    expected = [(text, label.strip()) for text, label in pairs]
    lines = [json.dumps({"text": t, "label": label}, ensure_ascii=False) for t, label in pairs]
    rows = read(folder, "d.jsonl", "\n".join(lines))
    assert [(row.text, row.label) for row in rows] == expected
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter).writerows([("text", "label"), *pairs])
    rows = read(folder, "d.csv", buffer.getvalue())
    assert [(row.text, row.label) for row in rows] == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", "", "d.jsonl holds no examples"),
        ("d.csv", "\n\n", "d.csv holds no examples"),
        ("d.csv", "text,label\n", "d.csv holds no examples"),
        ("d.csv", b"text,label\n\xff,x", "d.csv is no UTF-8 text (byte 11)"),
        ("d.jsonl", "text\0".encode("utf-16-le"), "d.jsonl is no text file: it holds zero bytes"),
        ("d.jsonl", '{"text": "a", "label": "x"}\n{"text": ', "d.jsonl, line 2: no JSON: "),
        ("d.json", "[\n", "d.json, line 1: no JSON: "),
        ("d.jsonl", '["a", "x"]', "d.jsonl, line 1: no JSON object; write one a line"),
        ("d.jsonl", "[" * 100_000, "d.jsonl, line 1: no JSON: "),
        (
            "d.jsonl",
            '{"sentence": "a", "label": "x"}',
            "d.jsonl, line 1: no 'text' among sentence, label; name it with --text-column",
        ),
        (
            "d.csv",
            "id;text;class\n1;a;x\n",
            "d.csv, line 1: no 'label' among id, text, class; name it with --label-column",
        ),
        ("d.jsonl", '\n{"text": 5, "label": "x"}', "d.jsonl, line 2: 'text' is 5, not text"),
        ("d.jsonl", '{"text": " \\t", "label": "x"}', "line 1: 'text' is empty"),
        ("d.jsonl", '{"text": "a\\ud800", "label": "x"}', "line 1: 'text' holds half a character"),
        ("d.jsonl", '{"text": "a", "label": null}', "line 1: 'label' is null; a label is"),
        ("d.jsonl", '{"text": "a", "label": 0.5}', "line 1: 'label' is 0.5; a label is"),
        ("d.jsonl", '{"text": "a", "label": NaN}', "line 1: 'label' is NaN; a label is"),
        ("d.csv", "text,label\na,\n", "line 2: 'label' is empty; a label is"),
        ("d.csv", "text,label\na,x\nb, c,x\n", "line 3: 3 fields where the header has 2"),
        ("d.csv", 'text,label\n"a\nb,x\nc,x\n', "line 2: unexpected end of data"),
        ("d.csv", 'text,label\n"a" b,x\n', "line 2: ',' expected after '\"'"),
    ],
)
def test_what_is_no_labelled_text_is_refused_with_its_place(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(BenchmarkError) as caught:
        read(tmp_path, name, content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.csv", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BenchmarkError, match=f"cannot read .*: {reason}"):
            read_examples(path)
