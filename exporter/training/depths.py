"""The classifier after any number of passes: what it gives, and how often it is right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from exporter.models import SharedEncoder
from exporter.training.batches import encode, pad
from exporter.training.data import Labelled
from exporter.training.evaluate import Score

__all__ = ["at_every_depth", "logits_at_every_depth", "score_depths"]

_BATCH = 64


def at_every_depth(
    model: SharedEncoder, input_ids: Tensor, attention_mask: Tensor, passes: int | None = None
) -> tuple[Tensor, Tensor]:
    """Run the classifier after each layer.

    What it gives after d layers is what the same encoder of depth d would give.

    Args:
        model: an encoder with a classifier.
        input_ids: int64 ``[B, S]``.
        attention_mask: int64 ``[B, S]``.
        passes: how many layers to run; all unless told otherwise.

    Returns:
        ``logits`` ``[passes, B, labels]`` and ``embeddings`` ``[passes, B, H]``, the mean
        over the tokens of the normalized hidden state.
    """
    hidden = model.embed(input_ids)
    minimum = torch.finfo(hidden.dtype).min
    mask = (1 - attention_mask.to(hidden.dtype)) * minimum
    weights = attention_mask.to(hidden.dtype).unsqueeze(-1)  # [B, S, 1]
    tokens = weights.sum(dim=1).clamp(min=1)  # [B, 1]
    embeddings = []
    for attention, ffn in zip(
        model.attention_order[:passes], model.ffn_order[:passes], strict=True
    ):
        hidden = model.attention_blocks[attention](hidden, mask)
        hidden = model.ffn_blocks[ffn](hidden)
        embeddings.append((model.final_norm(hidden) * weights).sum(dim=1) / tokens)
    stacked = torch.stack(embeddings)
    return model.classifier(stacked), stacked


@torch.no_grad()
def logits_at_every_depth(
    model: SharedEncoder, tokenizer: Tokenizer, texts: Sequence[str]
) -> Tensor:
    """Return logits ``[depth, N, labels]``; ``model`` must be in eval mode."""
    sequences = encode(tokenizer, texts)
    order = sorted(range(len(texts)), key=lambda index: len(sequences[index]))
    logits = torch.empty(model.config.num_hidden_layers, len(texts), len(model.config.labels))
    for start in range(0, len(order), _BATCH):
        indices = order[start : start + _BATCH]
        ids, mask = pad([sequences[index] for index in indices])
        logits[:, indices] = at_every_depth(model, ids, mask)[0].float()
    return logits


def score_depths(
    model: SharedEncoder, tokenizer: Tokenizer, sentences: Sequence[Labelled]
) -> list[Score]:
    """Score the two-label classifier after 1, 2, … layers.

    Raises:
        ValueError: no sentences.
    """
    if not sentences:
        raise ValueError("accuracy of no sentences")
    logits = logits_at_every_depth(model, tokenizer, [s.text for s in sentences])
    truth = torch.tensor([s.positive for s in sentences])
    positive = int(truth.sum())
    majority = max(positive, len(sentences) - positive) / len(sentences)
    right = ((logits[..., 1] > logits[..., 0]) == truth).sum(dim=1)
    return [Score(len(sentences), int(correct), majority) for correct in right]
