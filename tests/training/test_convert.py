from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from exporter.errors import CheckpointError
from exporter.models import EncoderConfig, SharedEncoder, SharingScheme
from exporter.training.convert import from_bert, share_layers, shrink_embedding
from tests.training.tiny import bert


def encoder(scheme: str = "none", layers: int = 6, seed: int = 0) -> SharedEncoder:
    config = EncoderConfig(
        vocab_size=30,
        embedding_size=16,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
        sharing=SharingScheme.parse(scheme),
        head="sequence_classification",
        labels=("negative", "positive"),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SharedEncoder(config)
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def logits(model: SharedEncoder) -> Tensor:
    ids = torch.tensor([[2, 7, 9, 3], [2, 5, 3, 0]])
    with torch.no_grad():
        return model(ids, (ids > 0).long())


@pytest.mark.parametrize(
    ("scheme", "attention", "ffn"),
    [
        ("all", [range(6)], [range(6)]),
        ("grouped(2)", [range(3), range(3, 6)], [range(3), range(3, 6)]),
        ("attention_only", [range(6)], [[i] for i in range(6)]),
        ("ffn_only", [[i] for i in range(6)], [range(6)]),
    ],
)
def test_each_block_is_the_mean_of_the_layers_of_its_group(
    scheme: str, attention: list[range], ffn: list[range]
) -> None:
    model = encoder()
    shared = share_layers(model, SharingScheme.parse(scheme))
    assert len(shared.attention_blocks) == len(attention)
    assert len(shared.ffn_blocks) == len(ffn)
    for block, layers in zip(shared.attention_blocks, attention, strict=True):
        own = [model.attention_blocks[i].attention.in_proj_weight for i in layers]
        torch.testing.assert_close(block.attention.in_proj_weight, torch.stack(own).mean(0))
    for block, layers in zip(shared.ffn_blocks, ffn, strict=True):
        own = [model.ffn_blocks[i].norm.bias for i in layers]
        torch.testing.assert_close(block.norm.bias, torch.stack(own).mean(0))
    for name in ("token_embedding.weight", "position_embedding.weight", "final_norm.weight"):
        assert torch.equal(shared.state_dict()[name], model.state_dict()[name])


def test_without_sharing_nothing_changes() -> None:
    model = encoder()
    assert torch.equal(logits(share_layers(model, SharingScheme("none"))), logits(model))


@pytest.mark.parametrize("scheme", ["all", "grouped(3)", "attention_only", "ffn_only"])
def test_averaging_equal_layers_is_exact(scheme: str) -> None:
    shared = encoder(scheme)
    apart = share_layers(shared, SharingScheme("none"))
    assert len(apart.attention_blocks) == len(apart.ffn_blocks) == 6
    assert torch.equal(logits(apart), logits(shared))
    again = share_layers(apart, SharingScheme.parse(scheme))
    for name, tensor in shared.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_another_depth_takes_layers_from_the_same_relative_place() -> None:
    model = encoder()
    shallow = share_layers(model, SharingScheme("none"), layers=3)
    for index, block in enumerate(shallow.ffn_blocks):
        pair = [model.ffn_blocks[2 * index + i].up.weight for i in (0, 1)]
        torch.testing.assert_close(block.up.weight, torch.stack(pair).mean(0))
    deep = share_layers(model, SharingScheme("none"), layers=12)
    for index, block in enumerate(deep.ffn_blocks):
        assert torch.equal(block.up.weight, model.ffn_blocks[index // 2].up.weight)
    assert deep.config.num_hidden_layers == 12


def test_the_source_and_the_random_state_are_left_alone() -> None:
    model = encoder()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    shrink_embedding(from_bert(bert(), max_length=8), [1, 2], 1)
    shared = share_layers(model, SharingScheme("none"))
    assert torch.equal(torch.random.get_rng_state(), state)
    for parameter in shared.parameters():
        parameter.data.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_more_groups_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="7 groups need at least as many layers"):
        share_layers(encoder(), SharingScheme("grouped", 7))
    with pytest.raises(ValueError, match="num_hidden_layers must be at least 1, not 0"):
        share_layers(encoder(), SharingScheme("all"), layers=0)


def test_a_bert_becomes_an_unshared_encoder_with_its_weights_in_place() -> None:
    source = bert(layers=3)
    model = from_bert(source, max_length=20)
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.embedding_size) == (3, 16, 16)
    assert (config.max_position_embeddings, str(config.sharing)) == (20, "none")
    assert config.labels == ("negative", "positive")
    layers, embeddings = source.bert.encoder.layer, source.bert.embeddings
    attention, ffn = model.attention_blocks[1], model.ffn_blocks[1]
    own = layers[1].attention.self
    query, key, value = attention.attention.in_proj_weight.chunk(3)
    assert torch.equal(query, own.query.weight)
    assert torch.equal(key, own.key.weight)
    assert torch.equal(value, own.value.weight)
    assert torch.equal(attention.attention.in_proj_bias[16:32], own.key.bias)
    assert torch.equal(attention.attention.out_proj.weight, layers[1].attention.output.dense.weight)
    assert torch.equal(ffn.up.weight, layers[1].intermediate.dense.weight)
    assert torch.equal(ffn.down.bias, layers[1].output.dense.bias)
    # Each LayerNorm is the one that made the block's input.
    first = model.attention_blocks[0].norm
    assert torch.equal(first.weight, embeddings.LayerNorm.weight)
    assert torch.equal(attention.norm.weight, layers[0].output.LayerNorm.weight)
    assert torch.equal(ffn.norm.bias, layers[1].attention.output.LayerNorm.bias)
    assert torch.equal(model.final_norm.weight, layers[2].output.LayerNorm.weight)
    expected = embeddings.word_embeddings.weight + embeddings.token_type_embeddings.weight[0]
    assert torch.equal(model.token_embedding.weight, expected)


def test_a_bert_block_computes_the_same_on_the_same_input() -> None:
    source = bert(layers=1)
    model = from_bert(source, max_length=20)
    layer = source.bert.encoder.layer[0]
    with torch.no_grad():
        before = torch.randn(2, 5, 16)
        x = source.bert.embeddings.LayerNorm(before)
        attended = layer.attention.output.dense(layer.attention.self(x)[0])
        torch.testing.assert_close(
            model.attention_blocks[0](before, None) - before, attended, atol=1e-5, rtol=1e-5
        )
        x = layer.attention.output.LayerNorm(before)
        torch.testing.assert_close(
            model.ffn_blocks[0](before) - before,
            layer.output.dense(layer.intermediate(x)),
            atol=1e-5,
            rtol=1e-5,
        )


def test_what_is_no_bert_classifier_is_refused() -> None:
    small = BertConfig(
        vocab_size=10,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    with pytest.raises(CheckpointError, match="not BertForMaskedLM"):
        from_bert(BertForMaskedLM(small), max_length=8)
    source = bert()
    with pytest.raises(CheckpointError, match="33 positions; this BERT has gelu and 32"):
        from_bert(source, max_length=33)
    source.config.hidden_act = "relu"
    with pytest.raises(CheckpointError, match="this BERT has relu"):
        from_bert(source, max_length=8)


def test_a_shrunk_embedding_of_full_width_only_picks_rows() -> None:
    model, rows = encoder(), [4, 2, 9, 9, 0]
    shrunk = shrink_embedding(model, rows, 16)
    assert shrunk.config.vocab_size == 5
    assert torch.equal(shrunk.token_embedding.weight, model.token_embedding.weight[rows])
    ids = torch.tensor([[0, 1, 4]])
    assert torch.equal(shrunk(ids), model(torch.tensor([[4, 2, 0]])))


def test_a_narrow_embedding_is_the_best_of_its_rank() -> None:
    model, rows = encoder(), list(range(30))
    table = model.token_embedding.weight.detach()

    def error(size: int) -> float:
        shrunk = shrink_embedding(model, rows, size)
        assert shrunk.token_embedding.weight.shape == (30, size)
        with torch.no_grad():
            projected = shrunk.embedding_projection(shrunk.token_embedding.weight)
        return float((projected - table).square().sum())

    values = torch.linalg.svdvals(table - table.mean(0))
    assert error(15) == pytest.approx(float(values[15:].square().sum()), rel=1e-3)
    assert error(4) == pytest.approx(float(values[4:].square().sum()), rel=1e-3)


def test_an_embedding_wider_than_its_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="embedding_size 5 must not exceed the 4 pieces kept"):
        shrink_embedding(encoder(), [1, 2, 3, 4], 5)
    with pytest.raises(ValueError, match="must not exceed hidden_size"):
        shrink_embedding(encoder(), list(range(30)), 17)


def test_a_factorized_embedding_is_not_factorized_again() -> None:
    model = encoder()
    narrow = SharedEncoder(dataclasses.replace(model.config, embedding_size=4))
    with pytest.raises(ValueError, match="factorized already"):
        shrink_embedding(narrow, [0, 1], 2)
