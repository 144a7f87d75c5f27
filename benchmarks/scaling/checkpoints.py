"""Reference encoders with random parameters, shared and unshared.

    python -m benchmarks.scaling.checkpoints FOLDER DEPTH WIDTH

Writes ``shared.pt`` and ``unshared.pt``. A process of its own, so that torch is not in the
memory of the one that measures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from exporter.models.config import EncoderConfig
from exporter.models.encoder import SharedEncoder
from exporter.models.saving import save_checkpoint
from exporter.models.sharing import SharingScheme

VOCABULARY, EMBEDDING, LONGEST, HEAD_WIDTH = 8000, 64, 256, 64


def main() -> None:
    """Write what is not there yet."""
    folder, depth, width = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    for name, sharing in (("shared", "all"), ("unshared", "none")):
        path = folder / f"{name}.pt"
        if path.exists():
            continue
        torch.manual_seed(0)
        model = SharedEncoder(config(depth, width, sharing))
        with torch.no_grad():  # equal parameters would be stored once in both
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.01)
        save_checkpoint(model, path)


def config(depth: int, width: int, sharing: str) -> EncoderConfig:
    """Return the shape of one model: heads of 64, an inner layer four times as wide."""
    return EncoderConfig(
        vocab_size=VOCABULARY,
        embedding_size=EMBEDDING,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=width // HEAD_WIDTH,
        intermediate_size=4 * width,
        max_position_embeddings=LONGEST,
        sharing=SharingScheme.parse(sharing),
    )


if __name__ == "__main__":
    main()
