"""The classifier after any number of passes: what it gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from exporter.models import SharedEncoder
from exporter.models.encoder import additive_mask, masked_mean
from exporter.training.batches import batches_by_length

__all__ = ["at_every_depth", "logits_at_every_depth"]


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
    mask = additive_mask(attention_mask, hidden.dtype)
    embeddings = []
    for attention, ffn in zip(
        model.attention_order[:passes], model.ffn_order[:passes], strict=True
    ):
        hidden = model.attention_blocks[attention](hidden, mask)
        hidden = model.ffn_blocks[ffn](hidden)
        embeddings.append(masked_mean(model.final_norm(hidden), attention_mask))
    stacked = torch.stack(embeddings)
    return model.classifier(stacked), stacked


@torch.no_grad()
def logits_at_every_depth(
    model: SharedEncoder, tokenizer: Tokenizer, texts: Sequence[str]
) -> Tensor:
    """Return logits ``[depth, N, labels]``; ``model`` must be in eval mode."""
    logits = torch.empty(model.config.num_hidden_layers, len(texts), len(model.config.labels))
    for indices, ids, mask in batches_by_length(tokenizer, texts):
        logits[:, indices] = at_every_depth(model, ids, mask)[0].float()
    return logits
