"""Texts without labels from a file: one a line, JSON lines, or CSV with a header."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from exporter.training.sources import DataError

__all__ = ["read_texts"]


def read_texts(path: Path, column: str = "text") -> list[str]:
    """Read UTF-8 text; blank lines are skipped, and each text is taken once.

    ``.jsonl`` and ``.json`` hold one JSON object a line, ``.csv`` and ``.tsv`` have a
    header; in any other file each line is a text.

    Args:
        path: the file.
        column: name of the text's column, or key.

    Raises:
        DataError: the file cannot be read, holds no texts, or a row has none; it names
            the line.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text (byte {error.start:,})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".json"):
        rows = _json_rows(content, path.name, column)
    elif suffix in (".csv", ".tsv"):
        rows = _csv_rows(content, path.name, column, "\t" if suffix == ".tsv" else ",")
    else:
        rows = ((number, line) for number, line in enumerate(content.split("\n"), start=1))
    texts: dict[str, None] = {}
    for number, text in rows:
        if not isinstance(text, str):
            raise DataError(f"{path.name}, line {number}: no text under {column!r}")
        if stripped := text.strip():
            texts[stripped] = None
    if not texts:
        raise DataError(f"{path.name} holds no texts")
    return list(texts)


def _json_rows(content: str, name: str, column: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{name}, line {number}: no JSON: {error}") from error
        yield number, row.get(column) if isinstance(row, dict) else None


def _csv_rows(content: str, name: str, column: str, delimiter: str) -> Iterator[tuple[int, object]]:
    reader = csv.DictReader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    try:
        if column not in (reader.fieldnames or ()):
            found = ", ".join(reader.fieldnames or ()) or "nothing"
            raise DataError(f"{name}: no column {column!r}; the header has {found}")
        for row in reader:
            yield reader.line_num, row[column]
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {error}") from error
