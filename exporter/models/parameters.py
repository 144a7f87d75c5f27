"""Parameter accounting of the reference encoder."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from exporter.models.config import EncoderConfig
from exporter.models.encoder import SharedEncoder
from exporter.models.sharing import SharingScheme

__all__ = ["ParameterCount", "count_parameters", "count_unshared"]


@dataclass(frozen=True)
class ParameterCount:
    """Numbers of scalar parameters.

    ``unique`` counts each parameter once, ``total`` once per *use* (which is what the
    same model without any sharing would hold, tied embedding included); ``components``
    splits ``unique``.
    """

    total: int
    unique: int
    trainable: int
    components: dict[str, int]

    @property
    def ratio(self) -> float:
        """How many times larger the model would be unshared."""
        return self.total / self.unique


def count_parameters(model: SharedEncoder) -> ParameterCount:
    """Count the parameters of ``model``."""
    components: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        component = _COMPONENT_OF.get(name.split(".")[0], "head")
        components[component] = components.get(component, 0) + parameter.numel()
    return ParameterCount(
        total=count_unshared(model.config),
        unique=sum(parameter.numel() for parameter in model.parameters()),
        trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
        components=components,
    )


def count_unshared(config: EncoderConfig) -> int:
    """Count what ``config`` would hold if each use had its own parameters."""
    unshared = dataclasses.replace(config, sharing=SharingScheme("none"))
    with torch.device("meta"):  # shapes only: no memory is taken
        model = SharedEncoder(unshared)
    count = sum(parameter.numel() for parameter in nn.Module.parameters(model))
    if config.head == "masked_lm":  # the decoder's use of the token embedding
        count += config.vocab_size * config.embedding_size
    return count


_COMPONENT_OF = {
    "token_embedding": "embedding",
    "position_embedding": "embedding",
    "embedding_projection": "embedding",
    "attention_blocks": "attention",
    "ffn_blocks": "ffn",
    "final_norm": "encoder_norm",
}
