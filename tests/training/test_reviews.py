from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from exporter.training import reviews
from exporter.training.data import Corpus, Labelled, Rated
from exporter.training.reviews import (
    parse_reviews,
    read_review_sentences,
    sentences,
    untested_sentences,
)
from exporter.training.sources import DataError

CORPUS = Corpus(
    training=(Rated("A scene to learn from.", 1.0),),
    development=(Rated("Dull from start to end.", -1.0),),
    held_out=(Rated("the end is , well , rare .", 2.0),),
    foreign={"imdb": (Labelled("One line stays with you.", True), Labelled("So good!", True))},
)


@pytest.mark.parametrize(
    ("review", "parts"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. who? then 3.5 of 5. 10 of them", ["Dr. who? then 3.5 of 5.", "10 of them"]),
        ('He said "No." (Really.) And  left', ['He said "No."', "(Really.)", "And left"]),
        ("up<br /><br />down<br>out", ["up", "down", "out"]),
        (" <br />", []),
    ],
)
def test_reviews_are_split_where_a_sentence_ends(review: str, parts: list[str]) -> None:
    assert list(sentences(review)) == parts


@pytest.mark.parametrize(
    "tested",
    [
        "the end is , well , rare .",  # the sentence, written in another way
        "So good",  # however short
        "It fell. Rightly so. He left",  # one of its sentences
        "On the third day they saw the light go out",  # as a part of a longer one
        "we slept - the end is well rare : so good , rightly",  # over the ends of sentences
    ],
)
def test_a_review_with_a_tested_text_is_left_out_whole(tested: str) -> None:
    review = "Before it we slept. THE END is (well) rare! So good. Rightly so.<br />"
    review += "And then, on the third day, they saw the light go out again."
    other = "There is more of it. The end is rare."
    assert untested_sentences([review, other], [tested]) == (
        ["The end is rare.", "There is more of it."]
    )


def test_seven_words_in_common_are_a_phrase() -> None:
    review = "And on the third day they saw a light. It went out."
    tested = ["On the third day they saw a hat", "...", "It went"]
    assert sorted(untested_sentences([review], tested)) == [
        "And on the third day they saw a light.",
        "It went out.",
    ]


@pytest.mark.parametrize(
    ("tested", "found"),
    [
        ("So good and so kind", True),  # a sentence of the review
        ("Not bad. So good and so kind.", True),  # one of the tested text's sentences is
        ("We slept well. So good and so kind.", True),  # and another one of it, too
        ("so good and", False),  # a part of a longer sentence
        ("kind. He left us. Then", False),  # laid over several
        ("so kind - he left us -", False),  # or over two
    ],
)
def test_a_tested_text_of_few_words_counts_only_where_it_stands_as_a_sentence(
    tested: str, found: bool
) -> None:
    review = "We slept well. So good and so kind. He left us then."
    kept = [] if found else ["He left us then.", "So good and so kind.", "We slept well."]
    assert sorted(untested_sentences([review], [tested])) == kept


def test_only_sentences_of_usual_length_are_kept() -> None:
    long, longest = (" ".join(["word"] * n) + "." for n in (41, 40))
    found = untested_sentences(["Not enough. Just enough now.", long, longest], [])
    assert sorted(found) == ["Just enough now.", longest]


def test_order_and_spelling_are_those_of_the_words_whatever_the_order_of_the_reviews() -> None:
    texts = [f"This is film number {n}." for n in range(50)]
    texts += ["THIS is film number 7!", "This is film number 7?"]
    first = untested_sentences(texts, [])
    assert first == untested_sentences(reversed(texts), [])
    assert len(first) == 50
    assert "THIS is film number 7!" in first
    # The least SHA-256 hashes of "this is film number …", by coreutils' sha256sum.
    assert first[:3] == [
        "This is film number 0.",
        "This is film number 23.",
        "This is film number 27.",
    ]


def test_so_many_sentences_come_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"t": f"This is film number {n}.", "s": 1} for n in range(9)]
    for tested in CORPUS.withheld:
        rows.append({"t": f"{tested} It is by the writer.", "s": 0})
    archive = tmp_path / "reviews.tgz"
    content = json.dumps(rows).encode()
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("package/reviews.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    monkeypatch.setattr(reviews, "fetch", lambda source, folder: archive)
    told: list[tuple[int, int]] = []
    found = read_review_sentences(tmp_path, CORPUS, 4, lambda *step: told.append(step))
    assert len(found) == 4
    assert told == [(done, 13) for done in range(1, 14)]
    everything = read_review_sentences(tmp_path, CORPUS, 100)
    assert everything[:4] == found
    assert sorted(everything) == sorted(row["t"] for row in rows[:9])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[", r"reviews\.json: not JSON"),
        (b"[" * 100_000, r"reviews\.json: not JSON"),
        (b'["\xff"]', r"reviews\.json: not UTF-8"),
        (b"{}", r"reviews\.json: not a list of reviews"),
        (b'[{"t": "fine"}, {"s": 1}]', r"reviews\.json: not a review with a text: \{'s': 1\}"),
        (b'[{"t": 3}]', r"not a review with a text"),
        (b"[3]", r"not a review with a text: 3"),
    ],
)
def test_a_damaged_file_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_reviews(content, "reviews.json")
