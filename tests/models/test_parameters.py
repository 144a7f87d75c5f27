from __future__ import annotations

import pytest
import torch

from exporter.models import EncoderConfig, SharedEncoder, SharingScheme, count_parameters
from tests.samples import tiny_config

# Of the tiny configuration: vocabulary 100, positions 24, E 16, H 32, F 64.
EMBEDDING = 100 * 16 + 24 * 16 + (16 * 32 + 32)
ATTENTION = (3 * 32 * 32 + 3 * 32) + (32 * 32 + 32) + 2 * 32  # QKV, output, LayerNorm
FFN = (32 * 64 + 64) + (64 * 32 + 32) + 2 * 32
FINAL_NORM = 2 * 32


def test_the_defaults_hold_albert_bases_parameters() -> None:
    vocabulary, positions, e, h, f = 30_000, 512, 128, 768, 3072
    embedding = (vocabulary + positions) * e + (e * h + h)
    attention = 4 * (h * h + h) + 2 * h
    ffn = (h * f + f) + (f * h + h) + 2 * h
    assert embedding + attention + ffn + 2 * h == 11_094_016
    with torch.device("meta"):
        count = count_parameters(SharedEncoder(EncoderConfig()))
    assert count.unique == 11_094_016
    assert count.total == embedding + 12 * (attention + ffn) + 2 * h == 89_060_608


@pytest.mark.parametrize(
    ("scheme", "attention_blocks", "ffn_blocks"),
    [
        ("all", 1, 1),
        ("attention_only", 1, 6),
        ("ffn_only", 6, 1),
        ("grouped(3)", 3, 3),
        ("none", 6, 6),
    ],
)
def test_a_shared_block_is_counted_once_and_its_uses_in_the_total(
    scheme: str, attention_blocks: int, ffn_blocks: int
) -> None:
    config = tiny_config(num_hidden_layers=6, sharing=SharingScheme.parse(scheme))
    count = count_parameters(SharedEncoder(config))
    assert count.components == {
        "embedding": EMBEDDING,
        "attention": attention_blocks * ATTENTION,
        "ffn": ffn_blocks * FFN,
        "encoder_norm": FINAL_NORM,
    }
    assert count.unique == sum(count.components.values())
    assert count.total == EMBEDDING + 6 * (ATTENTION + FFN) + FINAL_NORM
    assert count.ratio == count.total / count.unique


def test_the_tied_decoder_counts_twice_in_the_total_and_once_in_the_unique() -> None:
    head = (32 * 16 + 16) + 2 * 16 + 100  # projection, LayerNorm, bias
    plain = count_parameters(SharedEncoder(tiny_config(sharing=SharingScheme("none"))))
    tied = count_parameters(
        SharedEncoder(tiny_config(sharing=SharingScheme("none"), head="masked_lm"))
    )
    assert tied.components["head"] == head
    assert tied.unique == plain.unique + head
    assert tied.total == plain.total + head + 100 * 16


def test_the_classifier_counts_as_the_head() -> None:
    config = tiny_config(head="sequence_classification", labels=("a", "b", "c"))
    assert count_parameters(SharedEncoder(config)).components["head"] == 3 * 32 + 3


def test_frozen_parameters_are_not_trainable() -> None:
    model = SharedEncoder(tiny_config())
    before = count_parameters(model)
    assert before.trainable == before.unique
    model.token_embedding.weight.requires_grad = False
    after = count_parameters(model)
    assert after.trainable == before.unique - 100 * 16
    assert after.unique == before.unique


def test_an_unfactorized_embedding_has_no_projection() -> None:
    count = count_parameters(SharedEncoder(tiny_config(embedding_size=32)))
    assert count.components["embedding"] == (100 + 24) * 32
