"""Setting the smallest weights of the layers to zero."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch.nn.utils import prune

from exporter.models import SharedEncoder

__all__ = ["pruned"]

_Encoder = TypeVar("_Encoder", bound=SharedEncoder)


def pruned(model: _Encoder, share: float) -> _Encoder:
    """Return a copy whose blocks' matrices lack this share of their weights.

    The smallest ones go, by magnitude, over all blocks together; a shared block counts
    once. Embeddings, biases and LayerNorms stay whole. No training follows.
    """
    result = copy.deepcopy(model)
    matrices = [
        (module, name)
        for blocks in (result.attention_blocks, result.ffn_blocks)
        for module in blocks.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim == 2
    ]
    if share:
        prune.global_unstructured(matrices, prune.L1Unstructured, amount=share)
        for module, name in matrices:
            prune.remove(module, name)
    return result
