"""The reference encoder as a generator: each token sees only those before it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from exporter.models import SharedEncoder
from exporter.models.encoder import AttentionBlock

__all__ = ["CausalEncoder", "save_program"]


class CausalEncoder(SharedEncoder):
    """An encoder with a ``masked_lm`` head whose logits at a place are those of the next piece."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Map ids ``[B, S]`` to logits ``[B, S, V]``; texts are packed, so no mask is looked at."""
        length = input_ids.shape[1]
        hidden = self.embed(input_ids)
        # In float32, which attention takes beside queries of any type.
        lowest = torch.finfo(torch.float32).min
        later = torch.full((length, length), lowest, device=hidden.device).triu(1)  # [S, S]
        for attention, ffn in zip(self.attention_order, self.ffn_order, strict=True):
            block = cast(AttentionBlock, self.attention_blocks[attention])
            x = block.norm(hidden)
            x, _ = block.attention(x, x, x, attn_mask=later, need_weights=False)
            hidden = self.ffn_blocks[ffn](hidden + block.dropout(x))
        return self.apply_head(self.final_norm(hidden), None)


def save_program(model: SharedEncoder, path: Path) -> None:
    """Write a model of ids alone as a ``.pt2`` of any batch, and any length up to its own."""
    sizes = {
        0: torch.export.Dim("batch", max=512),
        1: torch.export.Dim("sequence", max=model.config.max_position_embeddings),
    }
    example = torch.ones(2, 7, dtype=torch.int64)
    program = torch.export.export(
        model.eval(), (), {"input_ids": example}, dynamic_shapes={"input_ids": sizes}
    )
    torch.export.save(program, path)
