"""Write the reference encoder to disk; ``exporter.checkpoint`` reads it back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from exporter.models.encoder import SharedEncoder

__all__ = ["save_checkpoint", "save_folder"]


def save_checkpoint(model: SharedEncoder, path: Path) -> None:
    """Write one ``.pt`` (configuration and state dict) that loads with ``weights_only=True``."""
    torch.save({"config": model.config.to_dict(), "state_dict": model.state_dict()}, path)


def save_folder(model: SharedEncoder, folder: Path, *, tokenizer: Path | None = None) -> None:
    """Write a folder in Hugging Face's form: ``config.json``, ``model.safetensors``.

    ``tokenizer`` is a folder whose tokenizer files are copied beside them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = json.dumps(model.config.to_dict(), indent=2) + "\n"
    (folder / "config.json").write_text(config, encoding="utf-8")
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file in sorted(tokenizer.glob("*token*.json")) if tokenizer else ():
        shutil.copyfile(file, folder / file.name)
