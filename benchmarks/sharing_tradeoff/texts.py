"""The study's texts, as files that every worker reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from exporter.atomic_writing import write_atomically
from exporter.training.data import Corpus, Rated, load_corpus, normalized
from exporter.training.labelled_files import FOREIGN_FILE, HELD_OUT_FILE, write_labelled
from exporter.training.transfer import read_glosses, transfer_texts

__all__ = [
    "LABELLED",
    "PASSAGES",
    "RATED",
    "TEXTS",
    "UNRATED",
    "collect",
    "read_rated",
    "read_texts",
    "write_texts",
]

TEXTS = "texts"
RATED, UNRATED, PASSAGES = "rated.jsonl", "unrated.jsonl", "passages.jsonl"
LABELLED = (HELD_OUT_FILE, FOREIGN_FILE)
"""Files of labelled sentences that ``classify`` is measured on."""


def collect(data_dir: Path, folder: Path) -> None:
    """Fetch what is not there yet, and write ``folder/texts``.

    ``generate`` learns from the rated sentences and words and from WordNet's definitions and
    examples, in an order that their hashes give.

    Raises:
        ExportError: an archive cannot be fetched or read.
    """
    if not (folder / TEXTS / PASSAGES).is_file():
        corpus = load_corpus(data_dir)
        glosses = read_glosses(data_dir)
        write_texts(folder, corpus, transfer_texts(corpus), glosses)


def write_texts(
    folder: Path, corpus: Corpus, unrated: Iterable[str], glosses: Iterable[str]
) -> None:
    """Write the files of the study's texts; the passages last."""
    texts = folder / TEXTS
    write_labelled(corpus, texts)
    _write(texts / RATED, (asdict(sentence) for sentence in corpus.training))
    _write(texts / UNRATED, ({"text": text} for text in unrated))
    passages = {normalized(t): t for t in (*(s.text for s in corpus.training), *glosses)}
    ordered = sorted(passages.items(), key=lambda item: hashlib.sha256(item[0].encode()).digest())
    _write(texts / PASSAGES, ({"text": text} for _, text in ordered))


def read_rated(folder: Path) -> list[Rated]:
    """Read the rated sentences."""
    return [Rated(**row) for row in _rows(folder / TEXTS / RATED)]


def read_texts(folder: Path, name: str) -> list[str]:
    """Read ``UNRATED`` or ``PASSAGES``."""
    return [row["text"] for row in _rows(folder / TEXTS / name)]


def _write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def _rows(path: Path) -> list[dict[str, Any]]:
    content = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in content.split("\n") if line]
