"""Small models, and modules of one's own wrapped as loaded models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from exporter.checkpoint import LoadedModel, Source, read_sharing_map
from exporter.inputs import Feeds, InputSpec, ModelInputs
from exporter.models import EncoderConfig, SharedEncoder

__all__ = [
    "VALUES",
    "Own",
    "as_loaded",
    "ids_inputs",
    "names_in",
    "tiny_config",
    "tiny_encoder",
    "worst_difference",
]

VALUES = InputSpec("x", "float32", ("batch", "sequence", 8))
"""One float input of width 8."""


def tiny_config(**changes: Any) -> EncoderConfig:
    """A reference encoder of two layers and width 32 that takes 24 tokens at most."""
    values: dict[str, Any] = {
        "vocab_size": 100,
        "embedding_size": 16,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 24,
    }
    return EncoderConfig(**(values | changes))


def tiny_encoder(**changes: Any) -> SharedEncoder:
    """An initialized encoder, the same one at each call; ``changes`` are of its configuration."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SharedEncoder(tiny_config(**changes))
        for parameter in model.parameters():  # biases and norms that matter
            nn.init.normal_(parameter, mean=0.02, std=0.2)
    return model.eval()


def ids_inputs(upper: int, limit: int) -> ModelInputs:
    """``input_ids`` and ``attention_mask`` of a model with a position embedding."""
    ids = InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", upper)
    mask = InputSpec("attention_mask", "int64", ("batch", "sequence"), "mask")
    return ModelInputs((ids, mask), {"sequence": limit})


class Own(nn.Module):
    """A module with a linear layer of width 8, buffers by keyword, and the forward it is given."""

    def __init__(self, run: Callable[[Own, Tensor], Any], **buffers: Tensor) -> None:
        super().__init__()
        self.run = run
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.linear = nn.Linear(8, 8)
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        """Run what it was given."""
        return self.run(self, x)


def as_loaded(
    module: nn.Module,
    specs: Sequence[InputSpec] = (VALUES,),
    limits: Mapping[str, int] | None = None,
) -> LoadedModel:
    """Describe a module in memory as if it had been loaded."""
    return LoadedModel(
        module=module,
        inputs=ModelInputs(tuple(specs), limits or {}),
        output_names=(),
        sharing=read_sharing_map(module),
        scheme="unknown",
        source=Source("own", "pickled_module", "0" * 64),
    )


def worst_difference(left: Feeds, right: Feeds) -> float:
    """Largest absolute difference of two sets of outputs with equal names and shapes."""
    assert list(left) == list(right)
    for name in left:
        assert left[name].shape == right[name].shape
    return max(float(np.abs(left[n] - right[n]).max()) for n in left)


def names_in(folder: Path) -> list[str]:
    """Names of what a folder holds, sorted."""
    return sorted(path.name for path in folder.iterdir())
