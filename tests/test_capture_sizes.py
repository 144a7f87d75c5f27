"""Modules whose ``forward`` asks for sizes: what is captured, what is said, what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporter.capture import Captured, capture
from exporter.checkpoint import load_checkpoint
from exporter.checkpoint.loaded import DepthPlan
from exporter.errors import CaptureError, CheckpointError, ExportError
from exporter.inputs import InputSpec
from exporter.pipeline import checkpoint as pipeline
from exporter.runtimes.cpu import CpuSession
from exporter.source_model import run_source
from tests.capturing import graph_of, session_of, worst_error
from tests.samples import Own, as_loaded, worst_difference

Limits = dict[str, int]


def captured_of(forward: Callable[[Own, Tensor], Any], limits: Limits | None = None) -> Captured:
    return capture(as_loaded(Own(forward), limits=limits))


def refusal(forward: Callable[[Own, Tensor], Any], limits: Limits | None = None) -> str:
    with pytest.raises(CaptureError) as caught:
        captured_of(forward, limits)
    return str(caught.value)


def triples(condition: Callable[[int, int], bool]) -> Callable[[Own, Tensor], Tensor]:
    """A forward that multiplies by three where its batch and sequence meet a condition."""
    return lambda m, x: m.linear(x) * (3 if condition(x.shape[0], x.shape[1]) else 1)


class TriplesLargeBatches(nn.Module):
    """Four passes through one layer, tripled from nine rows on."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layer = nn.Linear(8, 8)
        self.depth = 4

    def forward(self, input_ids: Tensor) -> Tensor:
        """Run ``depth`` passes."""
        x: Tensor = self.embedding(input_ids)
        for _ in range(self.depth):
            x = self.layer(x).tanh()
        return x * 3 if input_ids.shape[0] > 8 else x

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Make so many passes inside."""
        self.depth, before = depth, self.depth
        try:
            yield
        finally:
            self.depth = before


# Upper bounds


@pytest.mark.parametrize(
    ("condition", "declared", "limits"),
    [
        (lambda b, s: b > 8, {}, {"batch": 8}),
        (lambda b, s: 50 < s < 80, {}, {"sequence": 50}),
        (lambda b, s: b > 8, {"batch": 9, "sequence": 100}, {"batch": 8, "sequence": 100}),
    ],
)
def test_a_branch_on_a_larger_size_becomes_the_limit_and_is_said(
    condition: Callable[[int, int], bool], declared: Limits, limits: Limits
) -> None:
    captured = captured_of(triples(condition), declared)
    assert captured.inputs.limits == limits
    symbol = next(name for name in limits if limits[name] != declared.get(name))
    assert captured.notices == (
        f"the model was captured for {symbol} up to {limits[symbol]}: "
        "it behaves differently beyond",
    )


@pytest.mark.parametrize("declared", [{"batch": 8}, {"batch": 4}])
def test_a_bound_that_the_limits_keep_is_no_news(declared: Limits) -> None:
    captured = captured_of(triples(lambda b, s: b > 8), declared)
    assert (captured.inputs.limits, captured.notices) == (declared, ())


def test_the_reference_encoder_keeps_its_limit_without_a_notice(captured: Captured) -> None:
    assert captured.inputs.limits == {"sequence": 24}
    assert captured.notices == ()


@pytest.mark.parametrize("shallow", [False, True])
def test_an_artifact_refuses_what_its_model_was_not_captured_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shallow: bool
) -> None:
    module = TriplesLargeBatches()
    depths = []
    module.layer.register_forward_pre_hook(
        lambda *_: depths.append(module.depth) if torch.compiler.is_exporting() else None
    )
    ids = InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", 20)
    loaded = as_loaded(module, [ids], {"sequence": 32})
    loaded.depth_plan = DepthPlan((4,), module.at) if shallow else None
    monkeypatch.setattr(pipeline, "load_checkpoint", lambda *_, **__: loaded)
    artifact = pipeline.export_checkpoint(tmp_path / "model.pt", tmp_path / "out")
    assert set(depths) == ({2} if shallow else {4})
    assert artifact.inputs.limits == {"batch": 8, "sequence": 32}
    assert [n for n in artifact.manifest["notices"] if "captured for" in n] == [
        "the model was captured for batch up to 8: it behaves differently beyond"
    ]
    session = CpuSession(artifact.models()["fp32"], inputs=artifact.inputs)
    assert session.run({"input_ids": np.ones((8, 2), np.int64)})["output"].shape == (8, 2, 8)
    with pytest.raises(ExportError, match="has batch 9, beyond the model's maximum 8"):
        session.run({"input_ids": np.ones((9, 2), np.int64)})


# Lower bounds and other conditions


def test_a_model_that_treats_short_inputs_apart_is_refused_with_the_bound() -> None:
    message = refusal(triples(lambda b, s: s < 4))
    assert message.startswith("the model was captured for sequence of 4 or more")
    assert "at sequence 3 the captured graph computes something else" in message
    assert "give sequence as a fixed size in --input" in message


def test_a_model_that_fails_on_short_inputs_is_refused_with_its_own_reason() -> None:
    def windows(m: Own, x: Tensor) -> Tensor:
        return nn.functional.conv1d(x.mT, torch.ones(8, 8, 3)).mT

    message = refusal(windows)
    assert "captured for sequence of 3 or more, and at sequence 2 the model itself" in message
    assert "fails (RuntimeError: " in message


def test_a_bound_that_changes_nothing_is_no_reason_to_refuse(tmp_path: Path) -> None:
    loaded = as_loaded(Own(lambda m, x: m.linear(x[:, :5])))
    session = session_of(graph_of(loaded), tmp_path)
    assert worst_error(loaded, session) <= 1e-5
    for length in (1, 2, 3, 4, 5, 6):
        feeds = loaded.inputs.draw({"batch": 2, "sequence": length})
        assert worst_difference(run_source(loaded, feeds), dict(session.run(feeds))) <= 1e-5
    assert capture(loaded).notices == ()


@pytest.mark.parametrize(
    ("condition", "said", "at"),
    [
        (lambda b, s: s % 2 == 0, "(sequence % 2) != 0", "sequence 2 the"),
        (lambda b, s: s == 300, "sequence != 300", "sequence 300 the"),
        (lambda b, s: b * s > 100, "batch*sequence <= 100", "batch 8, sequence 13 the"),
        (lambda b, s: b > s, "batch <= sequence", "batch 3, sequence 2 the"),
    ],
)
def test_a_branch_that_no_limit_can_express_is_refused(
    condition: Callable[[int, int], bool], said: str, at: str
) -> None:
    limits = {"sequence": 400}
    message = refusal(triples(condition), limits)
    assert message.startswith(f"the model was captured for {said} only, and at {at} captured graph")


def test_a_branch_beyond_the_declared_limits_is_no_reason_to_refuse() -> None:
    assert captured_of(triples(lambda b, s: s == 300), {"sequence": 299}).notices == ()


def test_padding_to_a_multiple_inside_the_model_is_captured_right(tmp_path: Path) -> None:
    def padded(m: Own, x: Tensor) -> Tensor:
        length = x.shape[1]
        x = nn.functional.pad(x, (0, 0, 0, -length % 4))
        return m.linear(x.view(x.shape[0], -1, 4, 8)).flatten(1, 2)[:, :length]

    loaded = as_loaded(Own(padded))
    session = session_of(graph_of(loaded), tmp_path)
    for length in (1, 4, 6, 8, 9):
        feeds = loaded.inputs.draw({"batch": 2, "sequence": length})
        assert worst_difference(run_source(loaded, feeds), dict(session.run(feeds))) <= 1e-5


def test_a_model_of_multiples_alone_is_refused_with_the_size_and_what_to_do() -> None:
    message = refusal(lambda m, x: m.linear(x.view(x.shape[0], x.shape[1] // 4, 4, 8)))
    assert message.startswith("the model fails on x [2, 7, 8]: RuntimeError: shape '[2, 1, 4, 8]'")
    assert message.endswith("--input 'x:float32[batch,sequence<=N,8]'")


def test_sizes_of_different_names_are_independent() -> None:
    class Scores(nn.Module):
        def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
            scores = queries @ keys.mT
            return scores * 3 if queries.shape[1] == keys.shape[1] else scores

    specs = [
        InputSpec("queries", "float32", ("batch", "left", 8)),
        InputSpec("keys", "float32", ("batch", "right", 8)),
    ]
    with pytest.raises(CaptureError, match=r"for left != right only, and at left 2, right 2 "):
        capture(as_loaded(Scores(), specs))


# A forward that fails


def test_a_model_that_fails_at_a_verified_size_says_so_in_one_line() -> None:
    def short(m: Own, x: Tensor) -> Tensor:
        if x.shape[1] > 20:
            raise ValueError("too long\nfar too long")
        return m.linear(x)

    loaded = as_loaded(Own(short))
    with pytest.raises(CaptureError) as caught:
        run_source(loaded, loaded.inputs.draw({"batch": 1, "sequence": 128}))
    assert str(caught.value) == (
        "the model fails on x [1, 128, 8]: ValueError: too long; if it takes less, or one size "
        "alone, say so: --input 'x:float32[batch,sequence<=N,8]'"
    )


def test_an_assertion_on_the_length_becomes_the_limit() -> None:
    def short(m: Own, x: Tensor) -> Tensor:
        assert x.shape[1] <= 20
        return m.linear(x)

    assert captured_of(short).inputs.limits == {"sequence": 20}


# Exported programs


def program_file(folder: Path, forward: Callable[[Own, Tensor], Any], sequence: Any) -> Path:
    dim = torch.export.Dim
    with torch.no_grad():
        program = torch.export.export(
            Own(forward), (torch.ones(2, 7, 8),), dynamic_shapes=({0: dim.AUTO, 1: sequence},)
        )
    torch.export.save(program, folder / "model.pt2")
    return folder / "model.pt2"


def test_a_program_with_a_smallest_size_is_refused_with_it(tmp_path: Path) -> None:
    path = program_file(tmp_path, lambda m, x: m.linear(x), torch.export.Dim("s", min=4))
    with pytest.raises(CheckpointError, match="input x takes sequence only from 4, and a graph"):
        load_checkpoint(path)


def test_a_program_states_its_own_largest_size(tmp_path: Path) -> None:
    forward = triples(lambda b, s: s > 40)
    loaded = load_checkpoint(program_file(tmp_path, forward, torch.export.Dim.AUTO))
    captured = capture(loaded)
    assert (captured.inputs.limits, captured.notices) == ({"sequence": 40}, ())


def test_a_program_that_fails_at_a_size_says_how_to_state_it(tmp_path: Path) -> None:
    forward = triples(lambda b, s: s % 2 == 0)
    loaded = load_checkpoint(program_file(tmp_path, forward, torch.export.Dim.AUTO))
    with pytest.raises(CaptureError, match=r"fails on x \[1, 4, 8\]: .*; if .* dynamic_shapes"):
        run_source(loaded, loaded.inputs.draw({"batch": 1, "sequence": 4}))


# Names of outputs


def test_an_output_called_like_an_input_or_a_weight_is_renamed_and_said(tmp_path: Path) -> None:
    def forward(m: Own, x: Tensor) -> dict[str, Tensor]:
        y = m.linear(x)
        return {"x": y, "linear.weight": y + 1, "x_out": y + 2, "linear": y + 3, "add": y + 4}

    loaded = as_loaded(Own(forward))
    names = ["x_out_out", "linear.weight_out", "x_out", "linear", "add"]
    model = graph_of(loaded)
    assert [value.name for value in model.graph.outputs] == names
    assert "linear.weight" in model.graph.initializers
    assert worst_error(loaded, session_of(model, tmp_path)) <= 1e-5
    assert capture(loaded).notices == (
        "output 'x' is called 'x_out_out': an input or a weight has its name",
        "output 'linear.weight' is called 'linear.weight_out': an input or a weight has its name",
    )


def test_an_output_may_be_called_like_a_plain_tensor_of_the_module(tmp_path: Path) -> None:
    module = Own(lambda m, x: {"table": m.linear(x) + m.table})
    module.table = torch.arange(8.0)
    loaded = as_loaded(module)
    assert worst_error(loaded, session_of(graph_of(loaded), tmp_path)) <= 1e-5


# What torch prints


def test_a_branch_on_data_is_refused_without_a_word_on_the_error_stream(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    names = ("torch.fx", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")
    levels = [logging.getLogger(name).level for name in names]
    message = refusal(lambda m, x: m.linear(x) * 2 if x.sum() > 0 else m.linear(x))
    assert "Could not guard on data-dependent expression" in message
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert [r.name for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert [logging.getLogger(name).level for name in names] == levels
