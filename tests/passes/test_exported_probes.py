"""Graphs of both of torch's exporters, through all passes that keep or restore sharing."""

from __future__ import annotations

import functools
import io
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from exporter.models import EncoderConfig, SharedEncoder
from exporter.models.parameters import count_unshared
from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from exporter.passes.strip_export_traces import StripExportTracesPass
from exporter.passes.unshare_initializers import UnshareInitializersPass
from tests.passes.helpers import assert_pass_preserves, op_types, run, stored_bytes
from tests.passes.sharing import restore_sharing

Exporter = Literal["torchscript", "dynamo", "dynamo unoptimized"]
Probe = Literal["ALB", "TIED", "GRP"]

LOOPS: dict[Exporter, tuple[int, ...]] = {
    "torchscript": (2, 6, 12),
    "dynamo": (2, 6),
    "dynamo unoptimized": (2, 12),
}
WIDTH, VOCABULARY = 32, 200
SMALL_CONSTANTS = 2048  # bytes of shapes, axes and epsilons


class Stack(nn.Module):
    """Embedding, blocks of four Linear layers applied in turn, and a Linear head."""

    def __init__(self, order: Sequence[int], tied: bool) -> None:
        super().__init__()
        self.order = order
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
            for _ in range(max(order) + 1)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.order:
            x = torch.relu(self.blocks[block](x))
        return self.head(x)


def make(probe: Probe, loops: int) -> Stack:
    torch.manual_seed(0)
    order = [i % 2 for i in range(loops)] if probe == "GRP" else [0] * loops
    return Stack(order, tied=probe == "TIED").eval()


def unique_bytes(module: nn.Module) -> int:
    return sum(parameter.numel() * 4 for parameter in module.parameters())


@functools.cache
def exported(exporter: Exporter, probe: Probe, loops: int) -> bytes:
    return export(exporter, make(probe, loops), {"ids": torch.randint(0, VOCABULARY, (2, 5))})


def export(exporter: Exporter, module: nn.Module, inputs: dict[str, torch.Tensor]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            buffer if exporter == "torchscript" else None,
            dynamo=exporter != "torchscript",
            optimize=exporter != "dynamo unoptimized",
            input_names=list(inputs),
            output_names=["y"],
            verbose=False,
        )
    if program is not None:
        return program.model_proto.SerializeToString()
    return buffer.getvalue()


def load(serialized: bytes) -> ir.Model:
    return ir.from_proto(onnx.load_from_string(serialized))


FEEDS = {"ids": np.arange(10).reshape(2, 5)}
each_exporter = pytest.mark.parametrize("exporter", get_args(Exporter))


@each_exporter
@pytest.mark.parametrize("probe", ["ALB", "TIED", "GRP"])
def test_stored_bytes_are_the_unique_bytes_whatever_the_loop_count(
    exporter: Exporter, probe: Probe
) -> None:
    sizes = set()
    for loops in LOOPS[exporter]:
        model = load(exported(exporter, probe, loops))
        after = assert_pass_preserves(restore_sharing, model, FEEDS, modified=None)
        sizes.add(stored_bytes(after))
        assert len(set(weights_multiplied(after))) == 4 * (2 if probe == "GRP" else 1) + 1
        assert len(weights_multiplied(after)) == 4 * loops + 1
    assert len(sizes) == 1
    unique = unique_bytes(make(probe, 2))
    assert unique <= sizes.pop() <= unique + 64


def weights_multiplied(model: ir.Model) -> list[str | None]:
    """Names of the initializers that the matrix products read, one ``Transpose`` looked through."""
    names = []
    for node in model.graph:
        if node.op_type in ("MatMul", "Gemm"):
            weight = node.inputs[1]
            assert weight is not None
            if not weight.is_initializer():
                transpose = weight.producer()
                assert transpose is not None and transpose.op_type == "Transpose"
                weight = transpose.inputs[0]
            assert weight is not None and weight.is_initializer()
            names.append(weight.name)
    return names


@each_exporter
@pytest.mark.parametrize("probe", ["ALB", "GRP"])
def test_no_alias_and_no_transform_stands_before_a_weight(exporter: Exporter, probe: Probe) -> None:
    model = restore_sharing()(load(exported(exporter, probe, 6))).model
    assert not {"Identity", "Transpose", "Constant", "Cast"} & set(op_types(model))


@each_exporter
def test_a_tied_table_is_stored_once_behind_one_transpose(exporter: Exporter) -> None:
    model = restore_sharing()(load(exported(exporter, "TIED", 6))).model
    assert op_types(model).count("Transpose") == 1
    (gather,) = (node for node in model.graph if node.op_type == "Gather")
    (transpose,) = (node for node in model.graph if node.op_type == "Transpose")
    assert gather.inputs[0] is transpose.inputs[0]


def test_a_dynamo_export_carries_no_trace_after_stripping() -> None:
    model = load(exported("dynamo", "ALB", 6))
    assert b"stack_trace" in ir.to_proto(model).SerializeToString()
    stripped = ir.to_proto(assert_pass_preserves(StripExportTracesPass, model, FEEDS))
    content = stripped.SerializeToString()
    assert b".py" not in content and b"pkg." not in content
    assert len(content) < 1.05 * stored_bytes(model) + 10_000


CONFIG = EncoderConfig(
    vocab_size=50,
    embedding_size=16,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=8,
    head="masked_lm",
)


@functools.cache
def exported_encoder(exporter: Exporter) -> bytes:
    torch.manual_seed(0)
    module = SharedEncoder(CONFIG).eval()
    for parameter in module.parameters():  # no equal biases, which exporters merge or drop
        nn.init.normal_(parameter, std=0.1)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        ids = torch.randint(0, CONFIG.vocab_size, (2, 8))
        return export(exporter, module, {"ids": ids, "mask": torch.ones_like(ids)})
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


ENCODER_FEEDS = {"ids": np.arange(16).reshape(2, 8), "mask": np.ones((2, 8), np.int64)}


@each_exporter
@pytest.mark.parametrize("first", [DeduplicateInitializersPass, restore_sharing])
def test_the_unshared_baseline_stores_what_each_use_with_its_own_weights_takes(
    exporter: Exporter, first: Callable[[], ir.passes.PassBase]
) -> None:
    model = first()(load(exported_encoder(exporter))).model
    unshared = assert_pass_preserves(
        lambda: UnshareInitializersPass(perturb=False), model, ENCODER_FEEDS, may_grow=True
    )
    expected = 4 * count_unshared(CONFIG)
    assert expected <= stored_bytes(unshared) <= expected + SMALL_CONSTANTS


def test_no_two_weights_of_the_unshared_baseline_are_equal() -> None:
    model = restore_sharing()(load(exported_encoder("dynamo"))).model
    shared_outputs = run(model, ENCODER_FEEDS)
    UnshareInitializersPass()(model)
    before = stored_bytes(model)
    assert DeduplicateInitializersPass()(model).modified is False
    assert stored_bytes(model) == before
    (outputs,) = run(model, ENCODER_FEEDS)
    assert np.isfinite(outputs).all() and not np.array_equal(outputs, shared_outputs[0])
