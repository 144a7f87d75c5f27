"""Token ids: encoded, in batches of about equal length, and some of them hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from exporter.training.tokenizer import MASK_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID

__all__ = [
    "batches_by_length",
    "chosen_tokens",
    "encode",
    "hide_tokens",
    "ordinary_pieces",
    "pad",
    "shuffled_batches",
]

_POOL_BATCHES = 50
_PLACEHOLDER = re.compile(r"\[unused\d+\]")


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


def batches_by_length(
    tokenizer: Tokenizer, texts: Sequence[str], batch_size: int = 64, *, first: int = 0
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Encode texts, and yield them from the shortest to the longest: batches hold little padding.

    Args:
        tokenizer: gives the ids.
        texts: in any order.
        batch_size: texts per batch.
        first: so many of the shortest are left out.

    Yields:
        Where the batch's texts are in ``texts``, and their ids and mask, as :func:`pad` gives
        them.
    """
    sequences = encode(tokenizer, texts)
    order = sorted(range(len(texts)), key=lambda index: len(sequences[index]))
    for start in range(first, len(order), batch_size):
        indices = order[start : start + batch_size]
        yield (indices, *pad([sequences[index] for index in indices]))


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
    chosen = chosen_tokens(ids >= len(SPECIAL_TOKENS), share)
    stand_in = torch.where(torch.rand(ids.shape, device=ids.device) < 0.5, MASK_ID, UNK_ID)
    return torch.where(chosen, stand_in, ids)


def chosen_tokens(ordinary: Tensor, share: float) -> Tensor:
    """Choose about ``share`` of the places ``[B, S]`` that are true, at random."""
    return (torch.rand(ordinary.shape, device=ordinary.device) < share) & ordinary


def ordinary_pieces(tokenizer: Tokenizer) -> Tensor:
    """Tell of each id whether it stands for text, bool ``[V]``.

    Special tokens do not, nor do the ``[unused…]`` ones that BERT's vocabularies begin with.
    """
    vocabulary = tokenizer.get_vocab()
    special = {t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special}
    ordinary = torch.zeros(max(vocabulary.values()) + 1, dtype=torch.bool)
    for piece, index in vocabulary.items():
        ordinary[index] = piece not in special and not _PLACEHOLDER.fullmatch(piece)
    return ordinary
