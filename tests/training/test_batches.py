from __future__ import annotations

import pytest
import torch

from exporter.training.batches import (
    batches_by_length,
    hide_tokens,
    ordinary_pieces,
    pad,
    shuffled_batches,
)
from tests.training.tiny import OLD_SPECIAL, tokenizer


def test_padding_is_on_the_right_and_masked() -> None:
    ids, mask = pad([[2, 7, 3], [2, 3]])
    assert ids.tolist() == [[2, 7, 3], [2, 3, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert ids.dtype == mask.dtype == torch.int64


@pytest.mark.parametrize("first", [0, 3])
def test_texts_come_from_the_shortest_to_the_longest_and_say_where_they_were(first: int) -> None:
    texts = ["film " * (index * 3 % 7 + 1) for index in range(7)]
    batches = list(batches_by_length(tokenizer(), texts, 2, first=first))
    places = [index for indices, _, _ in batches for index in indices]
    assert places == sorted(range(7), key=lambda index: len(texts[index]))[first:]
    for indices, ids, mask in batches:
        encoded = [tokenizer().encode(texts[index]).ids for index in indices]
        assert torch.equal(ids, pad(encoded)[0])
        assert mask.sum(1).tolist() == [len(sequence) for sequence in encoded]


def test_special_and_unused_pieces_are_no_text() -> None:
    ordinary = ordinary_pieces(tokenizer())
    assert ordinary.tolist() == [False] * len(OLD_SPECIAL) + [True] * (
        tokenizer().get_vocab_size() - len(OLD_SPECIAL)
    )


def test_each_index_comes_once_and_batches_hold_like_lengths() -> None:
    lengths = [index % 40 + 1 for index in range(1000)]
    batches = list(shuffled_batches(lengths, 16, torch.Generator().manual_seed(0)))
    assert sorted(index for batch in batches for index in batch) == list(range(1000))
    assert max(len(batch) for batch in batches) == 16
    spreads = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    assert max(spreads) <= 5  # of 40, where random batches spread over 30 and more
    firsts = [lengths[batch[0]] for batch in batches]
    assert firsts != sorted(firsts)  # short ones do not always come first


def test_the_order_follows_from_the_generator() -> None:
    lengths = list(range(100))

    def order(seed: int) -> list[list[int]]:
        return list(shuffled_batches(lengths, 8, torch.Generator().manual_seed(seed)))

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_hidden_tokens_are_ordinary_ones_and_about_the_asked_share() -> None:
    ids = torch.full((200, 50), 9)
    ids[:, 0], ids[:, -1] = 2, 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hidden = hide_tokens(ids, 0.25)
    assert torch.equal(hidden[:, 0], ids[:, 0])
    assert torch.equal(hidden[:, -1], ids[:, -1])
    assert set(hidden[:, 1:-1].unique().tolist()) == {1, 4, 9}
    assert float((hidden[:, 1:-1] != 9).float().mean()) == pytest.approx(0.25, abs=0.02)
