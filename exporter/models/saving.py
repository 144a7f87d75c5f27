"""Write the reference encoder to disk; ``exporter.checkpoint`` reads it back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from exporter.atomic_writing import write_atomically
from exporter.models.encoder import SharedEncoder

__all__ = ["CONFIG", "WEIGHTS", "save_checkpoint", "save_folder", "write_model"]

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
"""Files of a folder in Hugging Face's form."""


def save_checkpoint(model: SharedEncoder, path: Path) -> None:
    """Write one ``.pt`` (configuration and state dict) that loads with ``weights_only=True``."""
    torch.save({"config": model.config.to_dict(), "state_dict": model.state_dict()}, path)


def save_folder(model: SharedEncoder, folder: Path, *, tokenizer: Path | None = None) -> None:
    """Write a folder in Hugging Face's form: ``config.json``, ``model.safetensors``.

    ``tokenizer`` is a folder whose tokenizer files are copied beside them.

    Raises:
        ArtifactError: one cannot be written.
    """
    write_model(folder, model.config.to_dict(), model.state_dict())
    for file in sorted(tokenizer.glob("*token*.json")) if tokenizer else ():
        shutil.copyfile(file, folder / file.name)


def write_model(folder: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write ``config.json`` and ``model.safetensors``, each whole or not at all.

    Raises:
        ArtifactError: one cannot be written.
    """
    write_atomically(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    weights = {name: tensor.contiguous() for name, tensor in state.items()}
    write_atomically(folder / WEIGHTS, save(weights, metadata={"format": "pt"}))
