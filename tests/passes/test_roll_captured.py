"""Graphs of PyTorch's exporter: ALBERT, the reference encoder, and layers nearly shared."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.capture import capture
from exporter.inputs import InputSpec, Role
from exporter.models import EncoderConfig, SharedEncoder, SharingScheme
from exporter.models.sharing import SharingKind
from exporter.passes.recipes import run_recipe, share_recipe
from exporter.passes.roll_repeated_blocks import RolledRun, RollRepeatedBlocksPass
from exporter.passes.unroll_loops import UnrollLoopsPass
from tests.passes.helpers import Feeds, assert_pass_preserves, assert_same_bits, run, stored_bytes
from tests.passes.roll_graphs import attempt, loops, node_count
from tests.samples import as_loaded

transformers = pytest.importorskip("transformers")

VOCABULARY, LONGEST = 50, 32
SIZES = [(1, 1), (2, 5), (3, 17)]


def feeds(names: Sequence[str], batch: int, length: int) -> Feeds:
    rng = np.random.default_rng(batch * length)
    arrays = {
        "input_ids": rng.integers(0, VOCABULARY, (batch, length)),
        "attention_mask": np.ones((batch, length), np.int64),
        "token_type_ids": rng.integers(0, 2, (batch, length)),
    }
    arrays["attention_mask"][-1, (length + 1) // 2 :] = 0
    return {name: arrays[name] for name in names}


def export(module: nn.Module, names: Sequence[str]) -> ir.Model:
    """Capture with dynamic batch and sequence."""
    kinds: dict[str, Role] = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "ids"}
    uppers = {"input_ids": VOCABULARY, "token_type_ids": 2}
    specs = [
        InputSpec(name, "int64", ("batch", "sequence"), kinds[name], uppers.get(name))
        for name in names
    ]
    return capture(as_loaded(module, specs, {"batch": 8, "sequence": LONGEST})).model


def canonical(exported: ir.Model, tie: Mapping[str, str] | None = None) -> ir.Model:
    """Prepare a copy of a graph as the passes before leave it.

    Args:
        exported: the graph, of a model whose layers share nothing.
        tie: prefix of weight names → prefix of the weights to take instead. Exporting a
            model takes seconds; what its weights are is all that sharing schemes differ in.
    """
    model = exported.clone()
    untied = exported.graph.initializers
    for prefix, source in (tie or {}).items():
        names = [name for name in untied if name.startswith(prefix)]
        assert names
        for name in names:
            replacement = untied[source + name.removeprefix(prefix)]
            model.graph.initializers[name].const_value = replacement.const_value
    run_recipe(model, share_recipe())
    return ir.from_proto(ir.to_proto(model))


def randomized(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.05)
    return module


class Albert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.AlbertConfig(
            vocab_size=VOCABULARY,
            embedding_size=16,
            hidden_size=32,
            num_hidden_layers=LAYERS,
            num_hidden_groups=LAYERS,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=LONGEST,
        )
        self.albert = transformers.AlbertModel(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        result = self.albert(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            output_hidden_states=True,
        )
        return (result.last_hidden_state, result.pooler_output, *result.hidden_states[:-1])


LAYERS = 4
ALBERT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@functools.cache
def exported_albert() -> ir.Model:
    return export(randomized(Albert()), ALBERT_INPUTS)


def albert(order: Sequence[int] = (0,) * LAYERS, *, hidden_states: bool = False) -> ir.Model:
    """ALBERT whose layer ``i`` uses the weights of group ``order[i]``."""
    layer = "albert.encoder.albert_layer_groups.{}."
    tie = {layer.format(i): layer.format(group) for i, group in enumerate(order) if i != group}
    model = canonical(exported_albert(), tie)
    if not hidden_states:
        del model.graph.outputs[2:]
        RemoveUnusedNodesPass()(model)
    return model


@functools.cache
def exported_reference() -> ir.Model:
    config = EncoderConfig(
        vocab_size=VOCABULARY,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=LONGEST,
        sharing=SharingScheme("none"),
    )
    return export(randomized(SharedEncoder(config)), ("input_ids", "attention_mask"))


def reference(scheme: SharingScheme) -> ir.Model:
    tie = {}
    for layer in range(LAYERS):
        attention = scheme.attention_block(layer, LAYERS)
        ffn = scheme.ffn_block(layer, LAYERS)
        # Blocks are numbered apart from layers: block n is what layer n would hold unshared.
        tie[f"attention_blocks.{layer}."] = f"attention_blocks.{attention}."
        tie[f"ffn_blocks.{layer}."] = f"ffn_blocks.{ffn}."
    return canonical(exported_reference(), tie)


def roll(model: ir.Model) -> tuple[ir.Model, list[RolledRun]]:
    names = [str(value.name) for value in model.graph.inputs]
    cases = [feeds(names, *size) for size in SIZES]
    rolled = assert_pass_preserves(RollRepeatedBlocksPass, model, *cases, may_grow=True)
    assert stored_bytes(rolled) <= stored_bytes(model) + 64
    return rolled, attempt(model)[1]


def test_all_layers_of_albert_become_one_loop_and_the_mask_stays_outside() -> None:
    model, (run_,) = roll(albert())
    assert run_.blocks == LAYERS
    assert node_count(model) <= 100
    outside = [node.op_type for node in model.graph]
    assert outside.count("MatMul") == 1  # the embedding projection
    assert "Softmax" not in outside
    body = loops(model)[0].attributes["body"].as_graph()
    inside = {node.op_type for node in body}
    assert not inside & {"Expand", "Range", "Cast"}  # of the mask
    assert body.inputs[2].shape == ir.Shape(["batch", "sequence", 32])


def test_groups_of_albert_become_a_loop_each() -> None:
    _, runs = roll(albert((0, 0, 1, 1)))
    assert [run_.blocks for run_ in runs] == [2, 2]


def test_alternating_layers_of_albert_become_one_block() -> None:
    plain = roll(albert())[1][0]
    _, (run_,) = roll(albert((0, 1, 0, 1)))
    assert run_.blocks == 2
    assert run_.nodes_per_block == 2 * plain.nodes_per_block


def test_hidden_states_stay_outputs_in_their_order() -> None:
    model = albert(hidden_states=True)
    rolled, (run_,) = roll(model)
    assert run_.blocks == LAYERS
    # The first is the embedding.
    assert len(run_.scanned) == LAYERS - 1
    names = [value.name for value in model.graph.outputs]
    assert [value.name for value in rolled.graph.outputs] == names


@pytest.mark.parametrize(
    ("scheme", "blocks"),
    [(SharingScheme("all"), [LAYERS]), (SharingScheme("grouped", 2), [2, 2])],
    ids=str,
)
def test_the_reference_encoder_gets_one_loop_per_group(
    scheme: SharingScheme, blocks: list[int]
) -> None:
    _, runs = roll(reference(scheme))
    assert [run_.blocks for run_ in runs] == blocks


@pytest.mark.parametrize("kind", ["attention_only", "ffn_only", "none"])
def test_layers_with_large_weights_of_their_own_stay_and_the_reason_is_given(
    kind: SharingKind,
) -> None:
    model = reference(SharingScheme(kind))
    copy, runs, (skipped,) = attempt(model)
    assert runs == []
    assert ir.to_proto(copy) == ir.to_proto(model)
    assert skipped.blocks == LAYERS
    assert f"{skipped.stacked_bytes:,} bytes per iteration, limit" in skipped.reason


class Adapted(nn.Module):
    """One shared layer, with norms, rank-8 adapters and a step embedding per iteration."""

    def __init__(self, layers: int = 3, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.step = nn.Embedding(layers, width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.into = nn.ModuleList(nn.Linear(width, 8, bias=False) for _ in range(2 * layers))
        self.out = nn.ModuleList(nn.Linear(8, width, bias=False) for _ in range(2 * layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embedding(input_ids)  # [B, S, H]
        mask = (1 - attention_mask[:, None, :].to(x.dtype)) * -1e9
        for layer in range(len(self.norms) // 2):
            one, two = 2 * layer, 2 * layer + 1
            y = self.norms[one](x + self.step.weight[layer])
            query = self.query(y) + self.out[one](self.into[one](y))
            value = self.value(y) + self.out[two](self.into[two](y))
            scores = query @ self.key(y).transpose(-1, -2) / 8 + mask
            x = x + torch.softmax(scores, -1) @ value
            x = x + self.down(F.gelu(self.up(self.norms[two](x))))
        return x


@functools.cache
def adapted() -> ir.Model:
    return canonical(export(randomized(Adapted()), ("input_ids", "attention_mask")))


def test_layers_with_norms_adapters_and_step_embeddings_of_their_own_roll_into_one_loop() -> None:
    model = adapted()
    rolled, (run_,) = roll(model)
    assert run_.blocks == 3
    per_layer = 64 * 4 + 4 * 64 * 8  # two norms, two adapters
    assert run_.stacked_bytes == per_layer * 4 + 8  # the step number
    assert len(run_.stacks) == 9
    unique = sum(parameter.numel() * 4 for parameter in Adapted().parameters())
    assert stored_bytes(rolled) <= unique + 256


def test_unrolling_what_was_rolled_gives_the_graph_back() -> None:
    for model in (albert(hidden_states=True), adapted()):
        rolled, _, _ = attempt(model)
        names = [str(value.name) for value in model.graph.inputs]
        case = feeds(names, 3, 17)
        unrolled = assert_pass_preserves(UnrollLoopsPass, rolled, case, may_grow=True)
        assert node_count(unrolled) == node_count(model)
        assert_same_bits(run(unrolled, case), run(model, case))
        again, _, _ = attempt(unrolled)
        assert node_count(again) == node_count(rolled)
        assert stored_bytes(again) == stored_bytes(rolled)
