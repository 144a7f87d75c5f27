from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from exporter.training.tokenizer import SPECIAL_TOKENS, save_tokenizer, train_tokenizer

NOUNS = ("film", "plot", "actor", "story", "music", "scene")
JUDGEMENTS = ("good", "bad", "great", "awful", "funny", "dull")
TEXTS = [f"The {a} {n} isn't {b}!" for n in NOUNS for a in JUDGEMENTS for b in JUDGEMENTS]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, vocab_size=120, max_length=24)


def test_special_tokens_come_first_and_frame_the_pieces(tokenizer: Tokenizer) -> None:
    assert [tokenizer.id_to_token(i) for i in range(5)] == list(SPECIAL_TOKENS)
    tokens = tokenizer.encode("A good film").tokens
    assert (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")
    assert tokenizer.get_vocab_size() <= 120


def test_no_piece_spans_a_word_and_punctuation_other_than_an_apostrophe(
    tokenizer: Tokenizer,
) -> None:
    parts = tokenizer.pre_tokenizer.pre_tokenize_str("a mess. (don't!)")
    assert [part for part, _ in parts] == ["▁a", "▁mess", ".", "▁", "(", "don't", "!", ")"]


def test_case_does_not_matter(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("GOOD Film!").ids == tokenizer.encode("good film!").ids


def test_long_texts_are_cut_to_the_limit_with_their_last_token_kept(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode("good " * 50)
    assert len(encoding.ids) == 24
    assert encoding.tokens[-1] == "[SEP]"


def test_nothing_is_padded(tokenizer: Tokenizer) -> None:
    lengths = {len(e.ids) for e in tokenizer.encode_batch(["good", "the good film plot"])}
    assert len(lengths) == 2


def test_pieces_decode_to_the_text_in_lower_case(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The plot isn't dull!").ids
    assert tokenizer.decode(ids) == "the plot isn't dull!"


def test_the_same_texts_give_the_same_file(tokenizer: Tokenizer) -> None:
    again = train_tokenizer(TEXTS, vocab_size=120, max_length=24)
    assert again.to_str() == tokenizer.to_str()


def test_pieces_are_in_order_of_their_scores_then_by_name(tokenizer: Tokenizer) -> None:
    learned = json.loads(tokenizer.to_str())["model"]["vocab"][len(SPECIAL_TOKENS) :]
    assert learned == sorted(learned, key=lambda item: (-item[1], item[0]))


def test_the_written_files_load_in_transformers_with_the_same_ids(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    save_tokenizer(tokenizer, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "The good actor isn't funny?"
    assert loaded(text, truncation=True)["input_ids"] == tokenizer.encode(text).ids
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).to_str() == tokenizer.to_str()
    padded = loaded(["good", text], padding=True, truncation=True)
    assert padded["input_ids"][0][-1] == loaded.pad_token_id == 0
    assert set(padded) == {"input_ids", "attention_mask"}
    assert (loaded.model_max_length, loaded.mask_token_id) == (24, 4)
