"""Random weights to start from: how large each matrix is."""

from __future__ import annotations

import torch

from exporter.models import EncoderConfig, SharedEncoder, SharingScheme
from exporter.models.config import Head
from exporter.training.starts import spread_embedding, spread_weights


def _encoder(head: Head = "sequence_classification") -> SharedEncoder:
    torch.manual_seed(0)
    return SharedEncoder(
        EncoderConfig(
            vocab_size=2000,
            embedding_size=64,
            hidden_size=100,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=400,
            max_position_embeddings=64,
            sharing=SharingScheme("none"),
            head=head,
            labels=("negative", "positive") if head == "sequence_classification" else (),
        )
    )


def _deviations(model: SharedEncoder) -> dict[str, float]:
    found = {n: p.std().item() for n, p in model.named_parameters() if p.ndim == 2}
    return {name: value for name, value in found.items() if "classifier" not in name}


def test_every_matrix_is_as_large_as_its_inputs_ask_for_and_the_rest_stays() -> None:
    model = _encoder()
    before = {n: p.clone() for n, p in model.named_parameters() if p.ndim == 1}
    wanted = {
        name: parameter.shape[1] ** -0.5
        for name, parameter in spread_weights(model).named_parameters()
        if parameter.ndim == 2
    } | {"token_embedding.weight": 0.1, "position_embedding.weight": 0.02}
    found = _deviations(model)
    assert len(found) == 2 + 1 + 2 * 4
    for name, value in found.items():
        assert abs(value / wanted[name] - 1) < 0.05, name
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters() if p.ndim == 1)
    blocks = model.ffn_blocks
    assert not torch.equal(blocks[0].up.weight, blocks[1].up.weight)


def test_only_the_embedding_is_larger_where_layers_keep_their_start() -> None:
    found = _deviations(spread_embedding(_encoder()))
    assert found.pop("token_embedding.weight") > 0.09
    assert found.pop("embedding_projection.weight") > 0.11
    assert all(abs(value / 0.02 - 1) < 0.05 for value in found.values())


def test_so_are_the_heads() -> None:
    classifier = spread_weights(_encoder()).classifier.weight  # only 200 numbers
    assert abs(classifier.std().item() / 0.1 - 1) < 0.2
    decoder = spread_weights(_encoder("masked_lm")).decoder_projection.weight
    assert abs(decoder.std().item() / 0.1 - 1) < 0.05
