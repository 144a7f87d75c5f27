"""The reference encoder: pre-LayerNorm, with layers that may share their weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.models.config import EncoderConfig

__all__ = ["SharedEncoder", "additive_mask", "masked_mean"]


class AttentionBlock(nn.Module):
    """LayerNorm and self-attention with a residual: ``x + MHA(LN(x))``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = nn.MultiheadAttention(
            config.hidden_size,
            config.num_attention_heads,
            dropout=config.dropout,
            batch_first=True,
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Map ``[B, S, H]`` to ``[B, S, H]``; the mask ``[B, S]`` is added to the scores."""
        x = self.norm(hidden)
        x, _ = self.attention(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)
        return hidden + self.dropout(x)


class FeedForwardBlock(nn.Module):
    """LayerNorm and feed-forward with a residual: ``x + W2 GELU(W1 LN(x))``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map ``[B, S, H]`` to ``[B, S, H]``."""
        x = self.up(self.norm(hidden))  # [B, S, F]
        return hidden + self.dropout(self.down(F.gelu(x)))


class SharedEncoder(nn.Module):
    """Transformer encoder whose layers use the blocks their sharing scheme names.

    A block is held once, however many layers use it, so ``state_dict`` holds no
    duplicates. Inputs are ``input_ids`` ``[B, S]`` (int64, below ``vocab_size``) and
    ``attention_mask`` ``[B, S]`` (1 = token, 0 = padding). The output is, by head:

    - ``none``: ``last_hidden_state`` ``[B, S, H]``
    - ``sequence_classification``: ``logits`` ``[B, labels]``, from the mean over the tokens
    - ``masked_lm``: ``logits`` ``[B, S, vocab]``, through the tied embedding
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        depth, scheme = config.num_hidden_layers, config.sharing
        self.attention_order = [scheme.attention_block(i, depth) for i in range(depth)]
        self.ffn_order = [scheme.ffn_block(i, depth) for i in range(depth)]

        width, hidden = config.embedding_size, config.hidden_size
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        self.position_embedding = nn.Embedding(config.max_position_embeddings, width)
        self.embedding_dropout = nn.Dropout(config.dropout)
        factorized = width != hidden
        self.embedding_projection = nn.Linear(width, hidden) if factorized else nn.Identity()
        self.attention_blocks = nn.ModuleList(
            AttentionBlock(config) for _ in range(max(self.attention_order) + 1)
        )
        self.ffn_blocks = nn.ModuleList(
            FeedForwardBlock(config) for _ in range(max(self.ffn_order) + 1)
        )
        self.final_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        if config.head == "sequence_classification":
            self.classifier = nn.Linear(hidden, len(config.labels))
        elif config.head == "masked_lm":
            self.decoder_projection = nn.Linear(hidden, width)
            self.decoder_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
            self.decoder_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(_initialize)

    @property
    def output_name(self) -> str:
        """Name of the one output, as Hugging Face calls it."""
        return "last_hidden_state" if self.config.head == "none" else "logits"

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """See the class; ``S`` must not exceed ``max_position_embeddings``."""
        hidden = self.embed(input_ids)
        mask = None if attention_mask is None else additive_mask(attention_mask, hidden.dtype)
        for attention, ffn in zip(self.attention_order, self.ffn_order, strict=True):
            hidden = self.attention_blocks[attention](hidden, mask)
            hidden = self.ffn_blocks[ffn](hidden)
        return self.apply_head(self.final_norm(hidden), attention_mask)

    def embed(self, input_ids: Tensor) -> Tensor:
        """Map ids ``[B, S]`` to the first layer's input ``[B, S, H]``."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        embedded = self.token_embedding(input_ids) + self.position_embedding(positions)
        return self.embedding_projection(self.embedding_dropout(embedded))

    def apply_head(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Map the normalized hidden state ``[B, S, H]`` to the output."""
        if self.config.head == "sequence_classification":
            return self.classifier(masked_mean(hidden, attention_mask))
        if self.config.head == "masked_lm":
            x = self.decoder_norm(F.gelu(self.decoder_projection(hidden)))  # [B, S, E]
            return F.linear(x, self.token_embedding.weight, self.decoder_bias)
        return hidden


def additive_mask(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a mask ``[B, S]``, 1 = token, into what is added to the scores."""
    # The lowest finite value, not -inf: a row with nothing but padding then attends
    # uniformly, in PyTorch and in ONNX alike, where -inf would give NaN in one of them.
    return (1 - attention_mask.to(dtype)) * torch.finfo(dtype).min


def masked_mean(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Average ``[B, S, H]`` over the tokens: ``[B, H]``."""
    if attention_mask is None:
        return hidden.mean(dim=1)
    weights = attention_mask.to(hidden.dtype).unsqueeze(-1)  # [B, S, 1]
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def _initialize(module: nn.Module) -> None:
    """Initialize like ALBERT: normal(0, 0.02) weights, zero biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    elif isinstance(module, nn.MultiheadAttention):
        nn.init.normal_(module.in_proj_weight, std=0.02)
    bias = getattr(module, "bias", None)
    if isinstance(module, nn.Linear) and isinstance(bias, Tensor):
        nn.init.zeros_(bias)
