from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from exporter.models import SharedEncoder, SharingScheme
from exporter.models.encoder import AttentionBlock, FeedForwardBlock
from tests.samples import tiny_config, tiny_encoder

EPS = 1e-12


def by_hand(model: SharedEncoder, ids: Tensor, mask: Tensor) -> Tensor:
    """The same computation from its formulas, on the model's own weights."""

    def norm(x: Tensor, layer: torch.nn.LayerNorm) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + EPS) * layer.weight + layer.bias

    heads = model.config.num_attention_heads
    batch, length = ids.shape
    x = model.token_embedding.weight[ids] + model.position_embedding.weight[:length]
    x = x @ model.embedding_projection.weight.T + model.embedding_projection.bias
    for a, f in zip(model.attention_order, model.ffn_order, strict=True):
        block = model.attention_blocks[a]
        assert isinstance(block, AttentionBlock)
        mha = block.attention
        qkv = norm(x, block.norm) @ mha.in_proj_weight.T + mha.in_proj_bias
        q, k, v = (
            part.reshape(batch, length, heads, -1).transpose(1, 2) for part in qkv.chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -1e30)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        x = x + mixed @ mha.out_proj.weight.T + mha.out_proj.bias
        ffn = model.ffn_blocks[f]
        assert isinstance(ffn, FeedForwardBlock)
        up = norm(x, ffn.norm) @ ffn.up.weight.T + ffn.up.bias
        gelu = up * 0.5 * (1 + torch.erf(up / math.sqrt(2)))
        x = x + gelu @ ffn.down.weight.T + ffn.down.bias
    return norm(x, model.final_norm)


IDS = torch.tensor([[5, 17, 99, 0], [1, 2, 3, 4]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


@pytest.mark.parametrize("scheme", ["all", "attention_only", "ffn_only", "grouped(2)", "none"])
def test_the_forward_is_the_pre_layer_norm_formula(scheme: str) -> None:
    model = tiny_encoder(num_hidden_layers=3, sharing=SharingScheme.parse(scheme))
    with torch.no_grad():
        torch.testing.assert_close(model(IDS, MASK), by_hand(model, IDS, MASK), rtol=0, atol=2e-5)


def test_padding_does_not_change_the_tokens_before_it() -> None:
    model = tiny_encoder()
    ids = torch.randint(0, 100, (1, 6), generator=torch.Generator().manual_seed(1))
    padded = F.pad(ids, (0, 5), value=7)
    mask = torch.tensor([[1] * 6 + [0] * 5])
    with torch.no_grad():
        alone, together = model(ids), model(padded, mask)
        unmasked = model(padded)
    torch.testing.assert_close(together[:, :6], alone, rtol=0, atol=2e-5)
    assert (unmasked[:, :6] - alone).abs().max() > 1e-2


@pytest.mark.parametrize("head", ["none", "sequence_classification", "masked_lm"])
def test_a_row_of_nothing_but_padding_is_finite(head: str) -> None:
    model = tiny_encoder(head=head, labels=("a", "b"))
    with torch.no_grad():
        output = model(IDS, torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0]]))
    assert torch.isfinite(output).all()


def test_classification_takes_the_mean_over_the_tokens_alone() -> None:
    model = tiny_encoder(head="sequence_classification", labels=("a", "b", "c"))
    with torch.no_grad():
        hidden = by_hand(model, IDS, MASK)
        means = torch.stack([hidden[0].mean(0), hidden[1, :2].mean(0)])
        expected = means @ model.classifier.weight.T + model.classifier.bias
        torch.testing.assert_close(model(IDS, MASK), expected, rtol=0, atol=2e-5)
        whole = model(IDS)
    assert whole.shape == (2, 3)


def test_the_decoder_is_the_embedding_itself() -> None:
    model = tiny_encoder(head="masked_lm")
    assert model(IDS).shape == (2, 4, 100)
    assert not any("decoder" in n and p.shape == (100, 16) for n, p in model.named_parameters())
    with torch.no_grad():
        before = model(IDS)
        model.token_embedding.weight[42] *= 2  # a token that is not among the ids
        changed = (model(IDS) - before).abs().amax(dim=(0, 1)) > 1e-6
    assert changed.nonzero().flatten().tolist() == [42]


def test_a_block_is_held_once_however_many_layers_use_it() -> None:
    deep = SharedEncoder(tiny_config(num_hidden_layers=9))
    assert (len(deep.attention_blocks), len(deep.ffn_blocks)) == (1, 1)
    assert deep.state_dict().keys() == SharedEncoder(tiny_config()).state_dict().keys()


@pytest.mark.parametrize(("head", "name"), [("none", "last_hidden_state"), ("masked_lm", "logits")])
def test_the_output_has_the_name_hugging_face_gives_it(head: str, name: str) -> None:
    assert tiny_encoder(head=head).output_name == name
