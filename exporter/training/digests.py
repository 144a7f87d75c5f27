"""Short hashes of what a run is made of, which tell one run, or one question, from another."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["digest_examples", "digest_model", "digest_texts"]

_NOT_THE_MODEL = ("_name_or_path", "architectures", "dtype", "transformers_version")
"""Entries of a configuration that say where it is from and how it lay there: no answer changes."""


def digest_texts(texts: Sequence[str]) -> str:
    """Hash texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def digest_model(model: PreTrainedModel, tokenizer: Tokenizer) -> str:
    """Hash all that decides what a model says of a text: tokenizer, class, configuration, weights.

    Of the configuration, what is not the default: of those, each version of transformers writes
    others.
    """
    config, default = _entries(model.config), _entries(type(model.config)())
    chosen = {
        name: value
        for name, value in config.items()
        if name not in _NOT_THE_MODEL and (name not in default or value != default[name])
    }
    digest = hashlib.sha256(tokenizer.to_str().encode())
    digest.update(f"{type(model).__name__} {json.dumps(chosen, sort_keys=True)}".encode())
    _add_tensors(digest, model.state_dict())
    return digest.hexdigest()[:16]


def digest_examples(sequences: Sequence[Sequence[int]], targets: Mapping[str, Tensor]) -> str:
    """Hash token ids and targets: millions of ids and hundreds of megabytes in about a second."""
    digest = hashlib.sha256(array("q", map(len, sequences)))
    for sequence in sequences:
        digest.update(array("q", sequence))
    _add_tensors(digest, targets)
    return digest.hexdigest()[:16]


def _entries(config: PreTrainedConfig) -> dict[str, Any]:
    return json.loads(config.to_json_string(use_diff=False))


def _add_tensors(digest: hashlib._Hash, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # As bytes, because NumPy has no bfloat16.
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
