"""Tiny models and the ways to save them."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from exporter.checkpoint import load_checkpoint
from exporter.errors import CheckpointError
from exporter.models import EncoderConfig, SharedEncoder

SIZES = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def randomize(module: nn.Module, seed: int = 0) -> None:
    """Give every parameter its own values, so that none is equal to another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)


def tiny_reference(**changes: Any) -> SharedEncoder:
    model = SharedEncoder(EncoderConfig(**{**SIZES, "embedding_size": 16, **changes}))
    randomize(model)
    return model.eval()


def tiny_huggingface(family: str, head: str = "Model", **changes: Any) -> Any:
    """Return an ``AlbertModel``, ``BertForMaskedLM``, …"""
    import transformers

    narrow = {"embedding_size": 16} if family == "Albert" else {}
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **narrow, **changes})
    config._attn_implementation = "eager"
    config.architectures = [f"{family}{head}"]
    model = getattr(transformers, f"{family}{head}")(config)
    randomize(model)
    return model.eval()


def save_folder(model: Any, folder: Path, state: dict[str, Tensor] | None = None) -> Path:
    """Write ``config.json`` and ``pytorch_model.bin``, the latter with any state dict."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    torch.save(model.state_dict() if state is None else state, folder / "pytorch_model.bin")
    return folder


def save_tensors(state: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, path)


def example(rows: int = 3, length: int = 8) -> dict[str, Tensor]:
    """Ids, a mask with one padded row and one of padding only, and two token types."""
    generator = torch.Generator().manual_seed(7)
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[1, length // 2 :] = 0
    mask[2] = 0
    return {
        "input_ids": torch.randint(0, 100, (rows, length), generator=generator),
        "attention_mask": mask,
        "token_type_ids": torch.randint(0, 2, (rows, length), generator=generator),
    }


def outputs(module: nn.Module, **feeds: Tensor) -> list[Tensor]:
    with torch.no_grad():
        result = module(**feeds)
    return [result] if isinstance(result, Tensor) else list(result)


def refusal(path: Path, **options: Any) -> str:
    """Return the message with which loading ``path`` is refused."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def pickle_of_own_class(folder: Path, source: str, build: str, *, name: str = "own") -> Path:
    """Save an object of a module that is importable only from ``folder / 'code'``.

    Args:
        folder: where ``model.pt`` and ``code/NAME.py`` are written.
        source: Python text of the module.
        build: expression, in that module, of the object to save.
        name: the module's name, different in each test.
    """
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / f"{name}.py").write_text(source)
    sys.path.insert(0, str(code))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
        torch.save(eval(build, vars(module)), folder / "model.pt")
    finally:
        sys.path.remove(str(code))
        sys.modules.pop(name, None)
    return folder / "model.pt"
