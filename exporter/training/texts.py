"""Texts without labels from a file: one a line, JSON lines, or CSV with a header."""

from __future__ import annotations

from pathlib import Path

from exporter.errors import BenchmarkError
from exporter.evaluation.examples import read_examples
from exporter.training.sources import DataError

__all__ = ["read_texts"]

_WITH_COLUMNS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")


def read_texts(path: Path, column: str = "text") -> list[str]:
    """Read UTF-8 text; blank lines are skipped, and each text is taken once.

    Files with columns are read as :func:`~exporter.evaluation.examples.read_examples` does;
    in a file of any other name each line is a text.

    Args:
        path: the file.
        column: name of the text's column, or key.

    Raises:
        DataError: the file cannot be read, holds no texts, or a row has none; it names
            the line.
    """
    if path.suffix.lower() in _WITH_COLUMNS:
        try:
            rows = [
                row.text for row in read_examples(path, text_column=column, label_column=None).rows
            ]
        except BenchmarkError as error:
            raise DataError(str(error)) from error
    else:
        rows = _lines(path)
    texts = list(dict.fromkeys(stripped for row in rows if (stripped := row.strip())))
    if not texts:
        raise DataError(f"{path.name} holds no texts")
    return texts


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text (byte {error.start:,})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
