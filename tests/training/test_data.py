from __future__ import annotations

import json

import pytest

from exporter.training.data import (
    Labelled,
    Rated,
    clearly_rated,
    normalized,
    parse_labelled,
    parse_lexicon,
    parse_rated,
    split,
)
from exporter.training.sources import DataError


def test_rated_lines_keep_rating_and_text_without_line_ends_or_byte_order_mark() -> None:
    content = "\ufeff1\t2.5\tA real treat.\r\n2_1\t-0.6\tToo tepid…\r\n".encode()
    assert parse_rated(content, "snippets") == (
        Rated("A real treat.", 2.5),
        Rated("Too tepid…", -0.6),
    )


def test_a_line_separator_inside_a_text_does_not_end_its_line() -> None:
    # str.splitlines would split here, and the rest would be a line of its own.
    assert parse_rated("1\t1.0\tone\u2028two\n".encode(), "x") == (Rated("one\u2028two", 1.0),)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"1\t2.5", "line 2: not 'id, rating, text'"),
        (b"1\tgood\tFine.", "line 2: rating 'good' is no number from -4 to 4"),
        (b"1\t7\tFine.", "line 2: rating '7' is no number from -4 to 4"),
        (b"1\tnan\tFine.", "line 2: rating 'nan' is no number from -4 to 4"),
        (b"1\t1.0\t\xff", "not UTF-8"),
    ],
)
def test_a_line_of_another_form_is_refused_by_number(line: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=f"snippets.*{complaint}"):
        parse_rated(b"1\t1.0\tFine.\n" + line, "snippets")


def test_the_lexicon_gives_its_words_and_leaves_emoticons_out() -> None:
    content = (
        b":-)\t1.3\t0.5\t[1]\nawful\t-2.0\t0.6\t[-2]\nl8r\t-0.3\t0.9\t[0]\nfed up\t-1.8\t0\t[]\n"
    )
    assert parse_lexicon(content, "lexicon") == (Rated("awful", -2.0), Rated("fed up", -1.8))
    with pytest.raises(DataError, match="lexicon, line 1: rating 'bad' is no number"):
        parse_lexicon(b"awful\tbad\n", "lexicon")


def test_labelled_rows_without_a_class_are_dropped() -> None:
    rows = [
        {"text": "Loved it.  ", "class": 1},
        {"text": "Broken.", "class": 0},
        {"text": ""},
        {"text": "", "class": None},
    ]
    assert parse_labelled(b"\xef\xbb\xbf" + json.dumps(rows).encode(), "yelp") == (
        Labelled("Loved it.", True),
        Labelled("Broken.", False),
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[", "not JSON"),
        (b'{"a": 1}', "not a row with a text"),
        (b'[{"text": 3, "class": 1}]', "not a row with a text"),
        (b'[{"text": "x", "class": 2}]', "class 2 is neither 0 nor 1"),
    ],
)
def test_labelled_content_of_another_form_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=f"yelp: {complaint}"):
        parse_labelled(content, "yelp")


def test_only_sentences_rated_clearly_positive_or_negative_are_kept() -> None:
    rated = [Rated("a", 1.0), Rated("b", -1.0), Rated("c", 0.99), Rated("d", -3.0)]
    assert clearly_rated(rated, 1.0) == (
        Labelled("a", True),
        Labelled("b", False),
        Labelled("d", False),
    )


def test_normalized_text_forgets_case_space_and_punctuation_alone() -> None:
    assert normalized("  A REAL\ttreat!!") == normalized("a real treat") == "a real treat"
    assert normalized("a real threat") != normalized("a real treat")


def _movies(count: int) -> list[Rated]:
    return [Rated(f"Sentence number {index} of the movies.", 1.0) for index in range(count)]


def test_the_split_holds_out_a_tenth_and_a_twentieth() -> None:
    corpus = split(_movies(4000), [], {})
    assert len(corpus.held_out) == pytest.approx(400, abs=60)
    assert len(corpus.development) == pytest.approx(200, abs=45)
    assert len(corpus.training) + len(corpus.development) + len(corpus.held_out) == 4000


def test_the_split_depends_on_the_text_and_not_on_order_or_company() -> None:
    movies = _movies(300)
    forward, backward = split(movies, [], {}), split(movies[::-1][:200], [], {})
    kept = {sentence.text for sentence in movies[100:]}
    assert {s.text for s in backward.held_out} == {s.text for s in forward.held_out} & kept


def test_no_text_is_in_two_parts_even_written_differently_or_in_another_collection() -> None:
    movies = _movies(300)
    shouted = [Rated(sentence.text.upper() + "!!", 1.0) for sentence in movies]
    foreign = {"yelp": (Labelled("Crust is not good.", False),)}
    others = [*shouted, Rated("crust is NOT good", -2.0), Rated("An editorial.", 0.0)]
    corpus = split([*movies, *shouted], others, foreign)

    training = {normalized(s.text) for s in corpus.training}
    development = {normalized(s.text) for s in corpus.development}
    held_out = {normalized(s.text) for s in corpus.held_out}
    assert development
    assert held_out
    assert not training & development
    assert not training & held_out
    assert not development & held_out
    assert normalized("Crust is not good.") not in training
    assert "an editorial" in training
