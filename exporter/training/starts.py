"""Random weights to start from, where ALBERT's 0.02 is too small."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from exporter.models import SharedEncoder

__all__ = ["spread_embedding", "spread_weights"]

_Encoder = TypeVar("_Encoder", bound=SharedEncoder)


def spread_embedding(model: _Encoder) -> _Encoder:
    """Draw the embedding anew, and wider; return the model.

    ALBERT's 0.02 throughout leaves a token's embedding, after the projection, far below what
    one layer adds to it: with little data, epochs pass before words tell apart.
    """
    nn.init.normal_(model.token_embedding.weight, std=0.1)
    if isinstance(model.embedding_projection, nn.Linear):
        nn.init.normal_(model.embedding_projection.weight, std=model.config.embedding_size**-0.5)
    return model


def spread_weights(model: _Encoder) -> _Encoder:
    """Draw embedding, layers and head anew, each matrix by its number of inputs; return the model.

    With a standard deviation of ``inputs ** -0.5`` (LeCun et al., "Efficient BackProp", 1998)
    what comes out of a matrix is as large as what goes in. ALBERT's 0.02 is that for 2,500
    inputs; with 64, a layer first adds little to its input. It helped small classifiers and
    harmed small generators, see ``benchmarks/sharing_tradeoff``: measure before choosing.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
        elif isinstance(module, nn.MultiheadAttention):
            nn.init.kaiming_normal_(module.in_proj_weight, nonlinearity="linear")
    return spread_embedding(model)
