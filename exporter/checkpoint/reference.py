"""Load the reference encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from exporter.checkpoint.input_specs import choose_inputs, well_known
from exporter.checkpoint.loaded import DepthPlan, LoadedModel, Source
from exporter.checkpoint.probing import record_probe
from exporter.checkpoint.sharing_map import read_sharing_map
from exporter.checkpoint.state_dicts import StateDict, check_dtypes, check_keys, strip_wrappers
from exporter.errors import CheckpointError
from exporter.models import EncoderConfig, SharedEncoder, count_parameters
from exporter.models.config import MODEL_TYPE, Head

__all__ = ["build_reference", "published_config"]


def build_reference(
    config: Mapping[str, Any], state: StateDict, source: Source, requested: Sequence[str]
) -> LoadedModel:
    """Build the reference encoder from its configuration and weights.

    Raises:
        CheckpointError: a configuration or state dict that does not fit.
    """
    try:
        chosen = EncoderConfig.from_dict(config)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"the configuration in {source.name} is wrong: {error}") from error
    with torch.random.fork_rng(devices=[]):  # the initial values are overwritten
        module = SharedEncoder(chosen)
    expected = module.state_dict()
    weights = strip_wrappers(state, expected)
    check_keys(weights, expected, "the reference encoder of its configuration")
    notices = check_dtypes(weights, expected)
    module.load_state_dict(weights)
    module.eval()
    ids = well_known("input_ids", upper=chosen.vocab_size)
    limits = {"sequence": chosen.max_position_embeddings}
    inputs = choose_inputs((ids, well_known("attention_mask")), limits, requested)
    sharing = replace(
        read_sharing_map(module, record_probe(module, inputs)),
        # The tied decoder is no module whose calls could be counted.
        total_bytes_if_unshared=count_parameters(module).total * 4,
    )
    return LoadedModel(
        module=module,
        inputs=inputs,
        output_names=(module.output_name,),
        sharing=sharing,
        scheme=str(chosen.sharing),
        source=source,
        config=published_config(chosen),
        notices=notices,
        depth_plan=_depth_plan(module),
    )


_ARCHITECTURES: Mapping[Head, str] = {
    "none": "AlbertModel",
    "sequence_classification": "AlbertForSequenceClassification",
    "masked_lm": "AlbertForMaskedLM",
}


def published_config(config: EncoderConfig) -> dict[str, Any]:
    """Return ``config.json`` for an artifact.

    transformers.js loads what it knows by ``model_type``. The exported graph takes and gives
    what ALBERT's does under the same names, and so goes by that one; ``source_model_type``
    has the true one.
    """
    return {
        **config.to_dict(),
        "model_type": "albert",
        "architectures": [_ARCHITECTURES[config.head]],
        "source_model_type": MODEL_TYPE,
    }


def _depth_plan(module: SharedEncoder) -> DepthPlan | None:
    if module.attention_order != module.ffn_order:  # one half of each layer is its own
        return None
    order = module.attention_order

    @contextmanager
    def at(passes: int) -> Iterator[None]:
        module.attention_order = module.ffn_order = sorted(sorted(set(order)) * passes)
        try:
            yield
        finally:
            module.attention_order = module.ffn_order = order

    return DepthPlan.of(order, at)
