"""ALBERT-base with random parameters, as a checkpoint.

    python -m benchmarks.layout.checkpoint FOLDER

A process of its own, so that torch is not in the memory of the one that measures.
"""

from __future__ import annotations

import sys

import torch
from transformers import AlbertConfig, AlbertModel


def main() -> None:
    """Write it."""
    torch.manual_seed(0)
    config = AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    model = AlbertModel(config)
    with torch.no_grad():  # fresh biases are all zero, and equal ones are stored once
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    model.save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
