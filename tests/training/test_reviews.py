from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from exporter.training import reviews
from exporter.training.data import Corpus, Labelled, Rated
from exporter.training.reviews import parse_reviews, read_reviews, sentences, unseen_sentences
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


def test_a_review_with_a_tested_sentence_is_left_out_whole_and_a_tested_phrase_alone() -> None:
    held = "Before it we slept. THE END is (well) rare! After it we did not."
    mixed = "So good. It is one to remember. Too short. See it twice. It is ONE to remember!"
    found = unseen_sentences([held, mixed, "We saw nothing of it."], CORPUS.unseen)
    assert sorted(found) == ["It is ONE to remember!", "See it twice.", "We saw nothing of it."]


def test_only_sentences_of_usual_length_are_kept() -> None:
    long, longest = (" ".join(["word"] * n) + "." for n in (41, 40))
    assert unseen_sentences(["Not enough. Just enough now.", long, longest], []) in (
        ["Just enough now.", longest],
        [longest, "Just enough now."],
    )


def test_the_order_is_that_of_the_words_whatever_that_of_the_reviews() -> None:
    texts = [f"This is film number {n}." for n in range(50)]
    first = unseen_sentences(texts, [])
    assert first == unseen_sentences(reversed(texts), [])
    assert first != texts
    assert sorted(first) == sorted(texts)


def test_so_many_sentences_come_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"t": f"This is film number {n}.", "s": 1} for n in range(9)]
    rows.append({"t": "One line stays with you. It is by the writer.", "s": 0})
    archive = tmp_path / "reviews.tgz"
    content = json.dumps(rows).encode()
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("package/reviews.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    monkeypatch.setattr(reviews, "fetch", lambda source, folder: archive)
    found = read_reviews(tmp_path, CORPUS, 4)
    assert len(found) == 4
    everything = read_reviews(tmp_path, CORPUS, 100)
    assert everything[:4] == found
    assert sorted(everything) == sorted(row["t"] for row in rows[:9])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[", r"reviews\.json: not JSON"),
        (b'["\xff"]', r"reviews\.json: not JSON"),
        (b"{}", r"reviews\.json: not a list of reviews"),
        (b'[{"t": "fine"}, {"s": 1}]', r"reviews\.json: not a review with a text: \{'s': 1\}"),
        (b'[{"t": 3}]', r"not a review with a text"),
        (b"[3]", r"not a review with a text: 3"),
    ],
)
def test_a_damaged_file_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_reviews(content, "reviews.json")
