"""Load ALBERT and BERT with the heads of transformers, offline and without its loader.

The module is built from its configuration and filled from our own state dict, so that a
missing weight is an error and never a random value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from exporter.checkpoint.input_specs import choose_inputs, well_known
from exporter.checkpoint.loaded import DepthPlan, LoadedModel, Source
from exporter.checkpoint.probing import record_probe
from exporter.checkpoint.sharing_map import read_sharing_map
from exporter.checkpoint.state_dicts import (
    StateDict,
    check_dtypes,
    check_keys,
    fold_ties,
    list_some,
    strip_wrappers,
)
from exporter.errors import CheckpointError

__all__ = ["ByName", "build_huggingface"]


_HEADS = {
    "Model": ("last_hidden_state", "pooler_output"),
    "ForMaskedLM": ("logits",),
    "ForSequenceClassification": ("logits",),
    "ForTokenClassification": ("logits",),
    "ForQuestionAnswering": ("start_logits", "end_logits"),
}
_FAMILIES = {"albert": "Albert", "bert": "Bert"}


class ByName(nn.Module):
    """A Hugging Face model that takes tensors by name and returns a plain tuple of tensors."""

    def __init__(self, model: nn.Module, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.outputs = outputs
        self.train(model.training)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Take ``[B, S]`` each; return the tensors that ``outputs`` names, in order."""
        result = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            return_dict=True,
        )
        return tuple(result[name] for name in self.outputs)


def build_huggingface(
    config: Mapping[str, Any], state: StateDict, source: Source, requested: Sequence[str]
) -> LoadedModel:
    """Build an ALBERT or BERT from its configuration and weights.

    Raises:
        CheckpointError: an architecture or option that is not supported, or a state dict
            that does not fit; transformers is not installed.
    """
    family, head = _choose(config, source.name)
    model, outputs, notices = _fill(family, head, config, state)
    module = ByName(model.eval(), outputs)
    inputs = _inputs(model, requested)
    content = dict(config)
    if notices and any("converted" in notice for notice in notices):
        content = {k: v for k, v in content.items() if k != "torch_dtype"} | {"dtype": "float32"}
    return LoadedModel(
        module=module,
        inputs=inputs,
        output_names=outputs,
        sharing=read_sharing_map(module, record_probe(module, inputs)),
        scheme=_scheme(family, model),
        source=source,
        config=content,
        notices=notices,
        depth_plan=_depth_plan(model) if family == "Albert" else None,
    )


def _depth_plan(model: Any) -> DepthPlan | None:
    """Plan for ALBERT, whose encoder reads its depth from the configuration at each call."""
    settings = model.base_model.encoder.config
    depth, groups = settings.num_hidden_layers, settings.num_hidden_groups

    @contextmanager
    def at(passes: int) -> Iterator[None]:
        settings.num_hidden_layers = passes * groups
        try:
            yield
        finally:
            settings.num_hidden_layers = depth

    # The group of a layer, as AlbertTransformer computes it.
    return DepthPlan.of([int(layer / (depth / groups)) for layer in range(depth)], at)


def _choose(config: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return the family and the head, such as ``Albert`` and ``ForMaskedLM``."""
    supported = f"supported: albert and bert as {', '.join(_HEADS)}"
    family = _FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise CheckpointError(f"{name}: model_type {config.get('model_type')!r}; {supported}")
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list) or len(architectures) != 1:
        raise CheckpointError(
            f'{name}: config.json must say which head to export, such as "architectures": '
            f'["{family}Model"]; {supported}'
        )
    head = str(architectures[0]).removeprefix(family)
    if head not in _HEADS or not str(architectures[0]).startswith(family):
        raise CheckpointError(f"{name}: architecture {architectures[0]!r}; {supported}")
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise CheckpointError(f"{name}: is_decoder models are not supported, only encoders")
    depth = config.get("num_hidden_layers", 1)
    if not (isinstance(depth, int) and 1 <= depth <= 10_000):
        raise CheckpointError(f"{name}: num_hidden_layers must be 1 to 10000, not {depth!r}")
    position = config.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise CheckpointError(
            f"{name}: position_embedding_type {position!r} is not supported, only 'absolute'"
        )
    return family, head


def _transformers() -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise CheckpointError(
            "reading a Hugging Face model needs transformers, which the extra 'hf' installs: "
            "pip install -e '.[hf]' in the project's folder"
        ) from error
    return transformers


def _fill(
    family: str, head: str, config: Mapping[str, Any], state: StateDict
) -> tuple[Any, tuple[str, ...], list[str]]:
    library = _transformers()
    options = {k: v for k, v in config.items() if k not in ("dtype", "torch_dtype")}
    try:
        settings = getattr(library, f"{family}Config").from_dict(options)
        # Measured with torch's exporter: the default attention turns a row that is all
        # padding into zeros in PyTorch and into something else in ONNX (off by 0.4); this
        # one adds the lowest float to the scores and agrees to 2e-7 on every row.
        settings._attn_implementation = "eager"
        extra = {}
        outputs = _HEADS[head]
        if head == "Model" and not any("pooler." in name for name in state):
            extra, outputs = {"add_pooling_layer": False}, outputs[:1]
        with torch.random.fork_rng(devices=[]):  # the initial values are overwritten
            model = getattr(library, f"{family}{head}")(settings, **extra)
    except Exception as error:  # its validators have exceptions of their own
        why = " ".join(str(error).split())
        raise CheckpointError(f"the configuration is no valid {family}Config: {why}") from error
    model = model.to(torch.float32)
    expected = model.state_dict()
    weights, unused = _align(strip_wrappers(_modern_names(state), expected), expected, model)
    weights = fold_ties(_complete_bias(weights, expected), model.all_tied_weights_keys)
    check_keys(weights, expected, type(model).__name__)
    notices = check_dtypes(weights, expected)
    model.load_state_dict(weights)
    if extra:
        notices.append("the checkpoint has no pooler: last_hidden_state is the only output")
    if unused:
        notices.append(f"{len(unused)} weights of other heads left out ({list_some(unused)})")
    return model, outputs, notices


def _modern_names(state: StateDict) -> StateDict:
    """Rename what early BERT checkpoints call ``LayerNorm.gamma`` and ``beta``."""
    ends = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    renamed = {}
    for name, tensor in state.items():
        for old, new in ends.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        renamed[name] = tensor
    return renamed


def _align(
    state: StateDict, expected: Mapping[str, Tensor], model: Any
) -> tuple[StateDict, list[str]]:
    """Match the encoder's prefix; leave out what belongs to other heads.

    Returns:
        The state dict, and the names left out that are worth a word.
    """
    prefix = f"{model.base_model_prefix}."
    prefixed = any(name.startswith(prefix) for name in state)
    unused: list[str] = []
    if model.base_model is model and prefixed:  # the encoder, out of a model with a head
        unused = [name for name in state if not name.startswith(prefix)]
        state = {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
    elif model.base_model is not model and not prefixed:
        encoder = {n.removeprefix(prefix) for n in expected if n.startswith(prefix)}
        state = {prefix + n if n in encoder else n: tensor for n, tensor in state.items()}
    spare = [n for n in state if n not in expected and _is_spare(n.removeprefix(prefix))]
    unused += [name for name in spare if not name.endswith(_OLD_BUFFERS)]
    return {name: t for name, t in state.items() if name not in spare}, unused


def _is_spare(name: str) -> bool:
    """Tell a weight of another head, or an old buffer, from one that nothing explains."""
    return name.endswith(_OLD_BUFFERS) or name.startswith(_HEAD_ROOTS)


_OLD_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Constants that early versions wrote among the weights."""

_HEAD_ROOTS = (
    "pooler.",
    "predictions.",
    "cls.",
    "classifier.",
    "qa_outputs.",
    "sop_classifier.",
)
"""What the heads of both families call their own weights."""


def _complete_bias(state: StateDict, expected: Mapping[str, Tensor]) -> StateDict:
    """Give the decoder's bias both its names.

    Some versions write it under one only; where the decoder is not tied the module holds
    both, and reads the decoder's.
    """
    for inner in [name for name in expected if name.endswith("predictions.decoder.bias")]:
        outer = inner.replace(".decoder.", ".")
        present = next((state[name] for name in (inner, outer) if name in state), None)
        if present is not None:
            state = {inner: present, outer: present} | state
    return state


def _inputs(model: Any, requested: Sequence[str]) -> Any:
    settings = model.config
    specs = (
        well_known("input_ids", upper=settings.vocab_size),
        well_known("attention_mask"),
        well_known("token_type_ids", upper=settings.type_vocab_size),
    )
    return choose_inputs(specs, {"sequence": settings.max_position_embeddings}, requested)


def _scheme(family: str, model: Any) -> str:
    if family == "Bert":
        return "none"
    groups = int(model.config.num_hidden_groups)
    if model.config.inner_group_num != 1:
        return "unknown"
    if groups == model.config.num_hidden_layers:
        return "none"
    return "all" if groups == 1 else f"grouped({groups})"
