from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, models

from exporter.errors import CheckpointError
from exporter.training.tokenizer import SPECIAL_TOKENS
from exporter.training.vocabulary import kept_rows, trim_tokenizer
from tests.training.tiny import NOUNS, RATINGS, sentences, tokenizer

TEXTS = [sentence.text for sentence in sentences(200)]


def trimmed(size: int = 70) -> Tokenizer:
    return trim_tokenizer(tokenizer(), TEXTS, vocab_size=size, max_length=12)


def test_special_tokens_come_first_and_used_words_stay() -> None:
    small = trimmed()
    assert small.get_vocab_size() == 70
    assert [small.id_to_token(index) for index in range(5)] == list(SPECIAL_TOKENS)
    assert all(small.token_to_id(word) is not None for word in (*NOUNS, *RATINGS))
    assert small.token_to_id("rare") is None
    assert small.token_to_id("[unused0]") is None
    assert small.encode("This film is lovely.").tokens == [
        *("[CLS]", "this", "film", "is", "lovely", ".", "[SEP]")
    ]


def test_a_word_that_went_is_spelled_and_never_unknown() -> None:
    assert tokenizer().encode("rareness").tokens == ["[CLS]", "rare", "##ness", "[SEP]"]
    spelled = ["r", "##a", "##r", "##e", "##n", "##e", "##s", "##s"]
    assert trimmed().encode("rareness").tokens == ["[CLS]", *spelled, "[SEP]"]


def test_the_most_used_pieces_stay_when_room_is_short() -> None:
    small = trimmed(62)
    counts = {word: sum(text.lower().count(word) for text in TEXTS) for word in (*NOUNS, *RATINGS)}
    kept = {word for word in counts if small.token_to_id(word) is not None}
    assert len(kept) == 1  # beside this, with, is
    assert counts[kept.pop()] == max(counts.values())


def test_ids_of_kept_pieces_lead_back_to_the_teachers() -> None:
    small, original = trimmed(), tokenizer()
    rows = kept_rows(small, original)
    assert len(rows) == 70
    for index, row in enumerate(rows):
        assert small.id_to_token(index) == original.id_to_token(row)
    assert rows[5:] == sorted(rows[5:])


def test_encodings_are_cut_and_the_same_after_saving() -> None:
    small = trimmed()
    ids = small.encode("film " * 50).ids
    assert (len(ids), ids[0], ids[-1]) == (12, 2, 3)
    again = Tokenizer.from_str(small.to_str())
    assert again.encode("A boring plot.").ids == small.encode("A boring plot.").ids
    assert json.loads(small.to_str())["padding"] is None


def test_what_cannot_be_trimmed_says_so() -> None:
    with pytest.raises(CheckpointError, match="can be trimmed, not Unigram"):
        trim_tokenizer(Tokenizer(models.Unigram()), TEXTS, vocab_size=50, max_length=8)
    with pytest.raises(CheckpointError, match="50 pieces have no room for the 53 single"):
        trimmed(50)
    bare = Tokenizer(models.WordPiece({"[PAD]": 0, "a": 1}, unk_token="[PAD]"))
    with pytest.raises(CheckpointError, match=r"the tokenizer has no \[UNK\]"):
        trim_tokenizer(bare, TEXTS, vocab_size=50, max_length=8)
