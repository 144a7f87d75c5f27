"""Token ids: encoded, in batches of about equal length, and some of them hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from exporter.training.tokenizer import MASK_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID

__all__ = ["encode", "hide_tokens", "pad", "shuffled_batches"]

_POOL_BATCHES = 50


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, special tokens included, not padded."""
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return ``input_ids`` and ``attention_mask``, both int64 ``[B, S]``, padded on the right."""
    longest = max(len(sequence) for sequence in sequences)
    ids = torch.full((len(sequences), longest), PAD_ID, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    return ids, mask


def shuffled_batches(
    lengths: Sequence[int], batch_size: int, generator: torch.Generator
) -> Iterator[list[int]]:
    """Yield each index once, in batches of like length and in random order.

    Sentences are sorted by length only within pools of 50 batches: sorting all of them
    would put the same ones together in every epoch.

    Args:
        lengths: length of each sequence.
        batch_size: indices per batch; the last ones may be smaller.
        generator: source of the order.
    """
    order = torch.randperm(len(lengths), generator=generator).tolist()
    batches: list[list[int]] = []
    for start in range(0, len(order), batch_size * _POOL_BATCHES):
        pool = sorted(order[start : start + batch_size * _POOL_BATCHES], key=lengths.__getitem__)
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    for index in torch.randperm(len(batches), generator=generator).tolist():
        yield batches[index]


def hide_tokens(ids: Tensor, share: float) -> Tensor:
    """Replace about ``share`` of the ordinary tokens ``[B, S]`` by mask or unknown, at random."""
    chosen = (torch.rand(ids.shape, device=ids.device) < share) & (ids >= len(SPECIAL_TOKENS))
    stand_in = torch.where(torch.rand(ids.shape, device=ids.device) < 0.5, MASK_ID, UNK_ID)
    return torch.where(chosen, stand_in, ids)
