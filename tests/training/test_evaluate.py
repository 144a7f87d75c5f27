from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

from exporter.training.data import Corpus, Labelled, Rated
from exporter.training.evaluate import (
    accuracy,
    evaluate,
    positive_probability,
)

VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3, "film": 4}


@pytest.fixture
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


class CountsGood(nn.Module):
    """Says positive where "good" is at least as frequent as "bad", and nothing else is."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        good = ((input_ids == 2) & (attention_mask == 1)).sum(1)
        bad = (input_ids == 3).sum(1)
        return torch.stack([bad, good], dim=1).float()


def test_accuracy_and_majority_are_counted(tokenizer: Tokenizer) -> None:
    sentences = [
        Labelled("good film", True),
        Labelled("bad film", False),
        Labelled("bad bad good", True),
        Labelled("good", True),
    ]
    score = accuracy(CountsGood(), tokenizer, sentences)
    assert (score.sentences, score.correct, score.majority) == (4, 3, 0.75)
    assert score.accuracy == 0.75
    assert score.gain_points == 0.0
    reversed_labels = [Labelled(s.text, not s.positive) for s in sentences]
    score = accuracy(CountsGood(), tokenizer, reversed_labels)
    assert (score.correct, score.majority, score.gain_points) == (1, 0.75, -50.0)


def test_accuracy_of_nothing_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="no sentences"):
        accuracy(CountsGood(), tokenizer, [])


def test_probabilities_come_back_in_the_order_of_the_texts(tokenizer: Tokenizer) -> None:
    texts = ["good " * (i % 7 + 1) if i % 3 else "bad " * (i % 5 + 1) for i in range(150)]
    probabilities = positive_probability(CountsGood(), tokenizer, texts)
    assert [p > 0.5 for p in probabilities.tolist()] == [i % 3 != 0 for i in range(150)]


def test_every_threshold_and_collection_is_scored(tokenizer: Tokenizer) -> None:
    corpus = Corpus(
        training=(),
        development=(),
        held_out=(Rated("good", 0.6), Rated("good film", 1.2), Rated("bad", -2.0)),
        foreign={
            "amazon": (Labelled("good", True),),
            "imdb": (Labelled("bad", True), Labelled("bad", False)),
            "yelp": (Labelled("bad film", False),),
        },
    )
    scores = evaluate(CountsGood(), tokenizer, corpus)
    assert {name: (s.correct, s.sentences) for name, s in scores.items()} == {
        "held-out, at least 0.5": (3, 3),
        "held-out, at least 1.0": (2, 2),
        "held-out, at least 1.5": (1, 1),
        "amazon": (1, 1),
        "imdb": (1, 2),
        "yelp": (1, 1),
        "amazon, imdb and yelp": (3, 4),
    }
