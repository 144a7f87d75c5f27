"""The demo model's test sentences as files that ``albert-export evaluate`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from exporter.atomic_writing import write_atomically
from exporter.training.data import Corpus
from exporter.training.evaluate import CLEAR_THRESHOLD

__all__ = ["FOREIGN_FILE", "HELD_OUT_FILE", "write_labelled"]

HELD_OUT_FILE = "held-out.jsonl"
FOREIGN_FILE = "foreign.jsonl"


def write_labelled(corpus: Corpus, folder: Path) -> dict[Path, int]:
    """Write two files of JSON lines, each line with ``text``, ``label`` and more.

    ``held-out.jsonl`` has the held-out sentences whose mean ``rating`` is at least 1.0 from
    neutral, ``foreign.jsonl`` those of the other collections with their ``collection``.

    Returns:
        How many sentences each file holds.
    """
    held_out = [
        {"text": s.text, "label": _label(s.rating > 0), "rating": s.rating}
        for s in corpus.held_out
        if abs(s.rating) >= CLEAR_THRESHOLD
    ]
    foreign = [
        {"text": s.text, "label": _label(s.positive), "collection": name}
        for name, sentences in corpus.foreign.items()
        for s in sentences
    ]
    written: dict[Path, list[dict[str, Any]]] = {
        folder / HELD_OUT_FILE: held_out,
        folder / FOREIGN_FILE: foreign,
    }
    for path, rows in written.items():
        write_atomically(path, _json_lines(rows))
    return {path: len(rows) for path, rows in written.items()}


def _label(positive: bool) -> str:
    return "positive" if positive else "negative"


def _json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
