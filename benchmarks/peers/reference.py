"""What PyTorch computes in float32, for the parity of every file.

    python -m benchmarks.peers.reference CHECKPOINT TARGET.json

A process of its own, so that torch is not in the way of what follows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AlbertModel

from exporter.reference import ReferenceCase, reference_document

TOKENS = 128
LENGTHS = (128, 128, 77, 5)
"""Tokens of each case; the rest of its one row is padding. All have the one shape that a file
of fixed size takes."""


def main() -> None:
    """Run the checkpoint, write its inputs and outputs."""
    checkpoint, target = Path(sys.argv[1]), Path(sys.argv[2])
    model = AlbertModel.from_pretrained(checkpoint, attn_implementation="eager").eval()
    document = reference_document([case(model, seed) for seed in range(len(LENGTHS))])
    target.write_text(json.dumps(document), encoding="utf-8")


def case(model: AlbertModel, seed: int) -> ReferenceCase:
    """Draw one row of 128 and run it."""
    rng, length = np.random.default_rng(500 + seed), LENGTHS[seed]
    feeds = {
        "input_ids": rng.integers(0, model.config.vocab_size, (1, TOKENS)),
        "attention_mask": (np.arange(TOKENS)[None] < length).astype(np.int64),
        "token_type_ids": rng.integers(0, 2, (1, TOKENS)),
    }
    with torch.no_grad():
        found = model(**{name: torch.from_numpy(array) for name, array in feeds.items()})
    names = ("last_hidden_state", "pooler_output")
    outputs = {name: found[name].numpy() for name in names}
    return ReferenceCase(f"{length} of {TOKENS} tokens", feeds, outputs)


if __name__ == "__main__":
    main()
