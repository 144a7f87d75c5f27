"""How often the demo model is right, against always saying the more frequent label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from exporter.scores import wilson_interval
from exporter.training.batches import batches_by_length
from exporter.training.data import Corpus, Labelled, clearly_rated

__all__ = [
    "CLEAR_THRESHOLD",
    "THRESHOLDS",
    "Score",
    "accuracy",
    "evaluate",
    "positive_probability",
]

CLEAR_THRESHOLD = 1.0
THRESHOLDS = (0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Score:
    """Accuracy on one set of labelled sentences; shares are from 0 to 1.

    Args:
        sentences: how many.
        correct: how many of them the model labels right.
        majority: share of the more frequent label, which is what a model that
            always says that label reaches.
    """

    sentences: int
    correct: int
    majority: float

    @property
    def accuracy(self) -> float:
        """Share labelled right."""
        return self.correct / self.sentences

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy."""
        return wilson_interval(self.correct, self.sentences)

    @property
    def gain_points(self) -> float:
        """Percentage points above the majority baseline."""
        return 100 * (self.accuracy - self.majority)


def evaluate(model: nn.Module, tokenizer: Tokenizer, corpus: Corpus) -> dict[str, Score]:
    """Score the model on everything it has not seen.

    Returns:
        By name: ``held-out, at least 1.0`` and so on, for each threshold on the mean
        rating; ``amazon``, ``imdb``, ``yelp``; and ``amazon, imdb and yelp``.
    """
    sets = {held_out_name(t): clearly_rated(corpus.held_out, t) for t in THRESHOLDS}
    sets.update(corpus.foreign)
    sets[all_foreign_name(corpus)] = tuple(s for part in corpus.foreign.values() for s in part)
    texts = list(dict.fromkeys(s.text for sentences in sets.values() for s in sentences))
    positive = positive_probability(model, tokenizer, texts) > 0.5
    labels = dict(zip(texts, positive.tolist(), strict=True))  # most texts are in several sets
    return {name: _score(sentences, labels) for name, sentences in sets.items()}


def held_out_name(threshold: float) -> str:
    """Name of the held-out sentences rated at least ``threshold`` from neutral."""
    return f"held-out, at least {threshold}"


def all_foreign_name(corpus: Corpus) -> str:
    """Name of all foreign collections together: ``amazon, imdb and yelp``."""
    *first, last = corpus.foreign
    return f"{', '.join(first)} and {last}" if first else last


def accuracy(model: nn.Module, tokenizer: Tokenizer, sentences: Sequence[Labelled]) -> Score:
    """Label ``sentences`` with ``model`` and count.

    Raises:
        ValueError: no sentences.
    """
    if not sentences:
        raise ValueError("accuracy of no sentences")
    texts = [s.text for s in sentences]
    positive = positive_probability(model, tokenizer, texts) > 0.5
    return _score(sentences, dict(zip(texts, positive.tolist(), strict=True)))


def _score(sentences: Sequence[Labelled], labels: Mapping[str, bool]) -> Score:
    positive = sum(s.positive for s in sentences)
    return Score(
        sentences=len(sentences),
        correct=sum(labels[s.text] == s.positive for s in sentences),
        majority=max(positive, len(sentences) - positive) / len(sentences),
    )


@torch.no_grad()
def positive_probability(model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor:
    """Probability ``[N]`` that each text is positive; ``model`` must be in eval mode."""
    probabilities = torch.empty(len(texts))
    for indices, ids, mask in batches_by_length(tokenizer, texts):
        probabilities[indices] = model(ids, mask).softmax(dim=1)[:, 1]
    return probabilities
