"""Labelled text from files that people have: JSON lines, and CSV with a header."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.errors import BenchmarkError

__all__ = ["Example", "Examples", "read_examples"]

_JSON_LINES = {".jsonl", ".ndjson", ".json"}
_CSV = {".csv", ".tsv"}
_DELIMITERS = (",", ";", "\t")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Example:
    """One text, its label as the file writes it (empty where none was asked for), and the line
    where it starts."""

    text: str
    label: str
    line: int


@dataclass(frozen=True)
class Examples:
    """The examples of one file, at least one.

    Args:
        name: of the file.
        sha256: of its content, whatever part of it was asked for.
        rows: in the order of the file.
    """

    name: str
    sha256: str
    rows: tuple[Example, ...]


def read_examples(
    path: Path,
    *,
    text_column: str = "text",
    label_column: str | None = "label",
    limit: int | None = None,
) -> Examples:
    """Read labelled text. Nothing is skipped but blank lines: a bad row is an error.

    1. ``.jsonl``, ``.ndjson`` and ``.json`` hold one JSON object a line; ``.csv`` and
       ``.tsv`` have a header. Any other file is the former if it starts with ``{``.
    2. The delimiter of a CSV file is the first of comma, semicolon and tab that splits its
       header into names among which both columns are. Quotes are doubled within quotes.
    3. Text is UTF-8, with a byte order mark or without. A label is text, or a whole number
       (``1``, ``1.0``). A truth value is the name ``true`` or ``false``, as CSV would write it,
       and no number.

    Args:
        path: the file.
        text_column, label_column: names of the two columns, or keys; without a label column,
            the labels are not read.
        limit: keep so many examples, evenly spread: a file may be sorted by its labels.

    Raises:
        BenchmarkError: the file cannot be read, is no such file, or holds no example; a row
            without text or label, or an empty one. The text names file and line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BenchmarkError(f"cannot read {path}: {error.strerror}") from error
    text = _decode(content, path.name)
    is_json = path.suffix.lower() in _JSON_LINES or (
        path.suffix.lower() not in _CSV and text.lstrip().startswith("{")
    )
    columns = (text_column,) if label_column is None else (text_column, label_column)
    rows = _json_rows(text, path.name) if is_json else _csv_rows(text, path.name, columns)
    found = tuple(_example(row, columns, line, path.name) for line, row in rows)
    if not found:
        raise BenchmarkError(f"{path.name} holds no examples")
    if limit is not None and limit < len(found):
        found = tuple(found[number * len(found) // limit] for number in range(limit))
    return Examples(path.name, hashlib.sha256(content).hexdigest(), found)


def _decode(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BenchmarkError(
            f"{name} is no UTF-8 text (byte {error.start:,}); save it as UTF-8 JSON lines or CSV"
        ) from error
    if "\0" in text:
        raise BenchmarkError(f"{name} is no text file: it holds zero bytes")
    return text


def _json_rows(text: str, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # Not splitlines: JSON allows further line separators within its strings.
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise BenchmarkError(f"{name}, line {line}: no JSON: {error}") from error
        if not isinstance(row, dict):
            raise BenchmarkError(f"{name}, line {line}: no JSON object; write one a line")
        yield line, row


def _csv_rows(
    text: str, name: str, columns: tuple[str, ...]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    delimiter = _delimiter(text, name, columns)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1  # a quoted text may go over several
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise BenchmarkError(
                f"{name}, line {line}: {error}; write a quote within quotes twice"
            ) from error
        if fields is None:
            return
        if not fields:
            continue
        if header is None:
            header = [field.strip() for field in fields]
            continue
        if len(fields) != len(header):
            raise BenchmarkError(
                f"{name}, line {line}: {len(fields)} fields where the header has {len(header)}; "
                "put text that holds the delimiter in quotes"
            )
        yield line, dict(zip(header, fields, strict=True))


def _delimiter(text: str, name: str, columns: tuple[str, ...]) -> str:
    """Find the delimiter by the header: texts are full of all of them."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise BenchmarkError(f"{name} holds no examples")
    headers = {}
    for delimiter in _DELIMITERS:
        try:
            fields = next(csv.reader([first], delimiter=delimiter, strict=True))
        except csv.Error:
            continue
        headers[delimiter] = [field.strip() for field in fields]
        if set(columns) <= set(headers[delimiter]):
            return delimiter
    best = max(headers.values(), key=len, default=[first])
    missing = next(column for column in columns if column not in best)
    raise BenchmarkError(_lacks(f"{name}, line 1", missing, best, columns))


def _example(row: Mapping[str, Any], columns: tuple[str, ...], line: int, name: str) -> Example:
    where = f"{name}, line {line}"
    for column in columns:
        if column not in row:
            raise BenchmarkError(_lacks(where, column, list(row), columns))
    text = row[columns[0]]
    if not isinstance(text, str):
        raise BenchmarkError(f"{where}: {columns[0]!r} is {_shown(text)}, not text")
    if not text.isascii() and _SURROGATE.search(text):
        raise BenchmarkError(f"{where}: {columns[0]!r} holds half a character (\\ud800 to \\udfff)")
    if not text.strip():
        raise BenchmarkError(f"{where}: {columns[0]!r} is empty; take the row out")
    if len(columns) == 1:
        return Example(text, "", line)
    label = _label(row[columns[1]])
    if not label:
        raise BenchmarkError(
            f"{where}: {columns[1]!r} is {_shown(row[columns[1]])}; a label is a name or its index"
        )
    return Example(text, label, line)


def _label(value: Any) -> str | None:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    return None


def _lacks(where: str, column: str, found: list[str], columns: tuple[str, ...]) -> str:
    option = "--text-column" if column == columns[0] else "--label-column"
    return f"{where}: no {column!r} among {_shown(', '.join(found))}; name it with {option}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    text = " ".join(text.split()) or "empty"
    return text if len(text) <= 80 else f"{text[:79]}…"
