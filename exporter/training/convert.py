"""From a trained unshared encoder to one whose layers share their weights.

Each function returns a new model, so that they chain:
``shrink_embedding(share_layers(from_bert(bert), scheme), rows, size)``. What sharing and
shrinking lose is for training, or distillation, to recover.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from exporter.errors import CheckpointError
from exporter.models import EncoderConfig, SharedEncoder, SharingScheme

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["from_bert", "share_layers", "shrink_embedding"]


@torch.no_grad()
def from_bert(bert: PreTrainedModel, *, max_length: int, dropout: float = 0.0) -> SharedEncoder:
    """Take over the weights of a BERT classifier, layer by layer, shared by none.

    BERT normalizes *after* each residual sum, the reference encoder before each block, so
    this is a starting point and no equal. A block's LayerNorm is the one that made its
    input in BERT; the last one becomes the final LayerNorm:

    - ``attention_blocks[i].norm`` ← the embedding's LayerNorm (i = 0), else layer i-1's
      output LayerNorm; ``ffn_blocks[i].norm`` ← layer i's attention LayerNorm
    - token embedding ← word embedding + token type 0; position embedding as it is, cut
    - ``classifier`` ← zeros, undecided: BERT's own one reads its pooler, which has no place
      beside the mean over the tokens

    Args:
        bert: a ``BertForSequenceClassification``.
        max_length: positions to keep.
        dropout: of the result.

    Raises:
        CheckpointError: another architecture, activation or kind of position.
    """
    config = bert.config
    if (name := type(bert).__name__) != "BertForSequenceClassification":
        raise CheckpointError(
            f"only BertForSequenceClassification is taken over, not {name}; start at random instead"
        )
    if config.hidden_act != "gelu" or max_length > config.max_position_embeddings:
        raise CheckpointError(
            f"taking over needs GELU and {max_length} positions; this BERT has "
            f"{config.hidden_act} and {config.max_position_embeddings}; start at random instead"
        )
    model = _new(
        EncoderConfig(
            vocab_size=config.vocab_size,
            embedding_size=config.hidden_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=max_length,
            sharing=SharingScheme("none"),
            head="sequence_classification",
            labels=tuple(config.id2label[index] for index in sorted(config.id2label)),
            dropout=dropout,
            layer_norm_eps=config.layer_norm_eps,
        )
    )
    embeddings = bert.base_model.embeddings
    words, types = embeddings.word_embeddings.weight, embeddings.token_type_embeddings.weight
    model.token_embedding.weight.copy_(words + types[0])
    model.position_embedding.weight.copy_(embeddings.position_embeddings.weight[:max_length])
    norm = embeddings.LayerNorm
    # The blocks' classes are private to the encoder.
    blocks: Iterable[tuple[Any, Any, Any]] = zip(
        bert.base_model.encoder.layer, model.attention_blocks, model.ffn_blocks, strict=True
    )
    for layer, attention, ffn in blocks:
        own, out = layer.attention.self, layer.attention.output
        _copy(attention.norm, norm)
        heads = (own.query, own.key, own.value)
        attention.attention.in_proj_weight.copy_(torch.cat([head.weight for head in heads]))
        attention.attention.in_proj_bias.copy_(torch.cat([head.bias for head in heads]))
        _copy(attention.attention.out_proj, out.dense)
        _copy(ffn.norm, out.LayerNorm)
        _copy(ffn.up, layer.intermediate.dense)
        _copy(ffn.down, layer.output.dense)
        norm = layer.output.LayerNorm
    _copy(model.final_norm, norm)
    nn.init.zeros_(model.classifier.weight)
    return model.eval()


@torch.no_grad()
def share_layers(
    model: SharedEncoder, scheme: SharingScheme, layers: int | None = None
) -> SharedEncoder:
    """Average the blocks of ``model`` into those of ``scheme``.

    With 6 layers and ``grouped(3)``, block 0 is the mean of layers 0 and 1, block 1 of 2
    and 3, block 2 of 4 and 5. Averaging equal blocks is exact.

    Args:
        model: the encoder; it may share already.
        scheme: what the result shares.
        layers: depth of the result; each of its layers stands for the layer of ``model``
            at the same relative place. The same depth unless told otherwise.

    Raises:
        ValueError: more groups than layers, or no layer.
    """
    depth = model.config.num_hidden_layers
    layers = depth if layers is None else layers
    result = _new(dataclasses.replace(model.config, sharing=scheme, num_hidden_layers=layers))
    for name, module in result.named_children():
        if not isinstance(module, nn.ModuleList):
            module.load_state_dict(model.get_submodule(name).state_dict())
    for half in ("attention", "ffn"):
        blocks, order = getattr(model, f"{half}_blocks"), getattr(model, f"{half}_order")
        own = getattr(result, f"{half}_order")
        for index, block in enumerate(getattr(result, f"{half}_blocks")):
            stood_for = [i for i in range(depth) if own[i * layers // depth] == index]
            if not stood_for:  # the result is deeper, and this block is between two layers
                stood_for = [own.index(index) * depth // layers]
            block.load_state_dict(_mean([blocks[order[i]].state_dict() for i in stood_for]))
    return result.train(model.training)


@torch.no_grad()
def shrink_embedding(model: SharedEncoder, rows: Sequence[int], size: int) -> SharedEncoder:
    """Keep some rows of the token embedding, and factorize what is kept.

    The result's token and position embeddings, projected, are the best approximation of
    the kept rows by so few dimensions (singular value decomposition around the mean row;
    the projection's bias carries the mean), and exact where ``size`` is the full width.

    Args:
        model: an encoder whose embedding is not factorized.
        rows: the old id of each new id.
        size: the new ``embedding_size``.

    Raises:
        ValueError: the embedding is factorized already, or ``size`` exceeds its width or
            the number of rows.
    """
    config = model.config
    if config.embedding_size != config.hidden_size:
        raise ValueError("the embedding is factorized already")
    if len(rows) < size < config.hidden_size:
        raise ValueError(f"embedding_size {size} must not exceed the {len(rows)} pieces kept")
    result = _new(dataclasses.replace(config, vocab_size=len(rows), embedding_size=size))
    for name, module in result.named_children():
        if "embedding" not in name:
            module.load_state_dict(model.get_submodule(name).state_dict())
    table = model.token_embedding.weight[torch.tensor(rows)]  # [V, H]
    positions = model.position_embedding.weight  # [P, H]
    if size == config.hidden_size:
        result.token_embedding.weight.copy_(table)
        result.position_embedding.weight.copy_(positions)
        return result.train(model.training)
    middle = table.mean(dim=0)
    _, values, directions = torch.linalg.svd(table - middle, full_matrices=False)
    basis = directions[:size]  # [E, H], orthonormal rows
    # The spread moves into the projection, so that all of it is learned at one pace.
    scale = values[0] / len(rows) ** 0.5
    result.token_embedding.weight.copy_((table - middle) @ basis.T / scale)
    result.position_embedding.weight.copy_(positions @ basis.T / scale)
    projection = {"weight": (basis.T * scale).contiguous(), "bias": middle}
    result.embedding_projection.load_state_dict(projection)
    return result.train(model.training)


def _new(config: EncoderConfig) -> SharedEncoder:
    with torch.random.fork_rng(devices=[]):  # the initial values are overwritten
        return SharedEncoder(config)


def _mean(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    first, *others = states
    if all(torch.equal(first[name], state[name]) for state in others for name in first):
        return first  # the mean of equal numbers can differ from them in the last bit
    return {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in first}


def _copy(target: nn.Module, source: nn.Module) -> None:
    target.load_state_dict({name: source.state_dict()[name] for name in target.state_dict()})
