from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from exporter.accounting import stored_bytes
from exporter.artifact import Artifact
from exporter.capture import Captured, capture
from exporter.errors import CaptureError, ExportError
from exporter.inputs import InputSpec, verification_cases
from exporter.models import SharedEncoder
from exporter.runtimes.cpu import CpuSession
from exporter.source_model import run_source
from tests.capturing import graph_of, session_of, worst_error
from tests.samples import Own, as_loaded, ids_inputs, worst_difference

ATOL = 1e-5


def weights(model: ir.Model, size: int) -> list[str]:
    """Names of the initializers of ``size`` elements."""
    return [n for n, v in model.graph.initializers.items() if v.const_value.size == size]  # type: ignore[union-attr]


# The reference encoder


@pytest.fixture(scope="module")
def session(artifact: Artifact) -> CpuSession:
    return CpuSession(artifact.models()["fp32"], threads=1)


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 8), (2, 5), (1, 17), (1, 24), (4, 24)])
def test_the_sizes_of_the_example_are_not_baked_in(
    encoder: SharedEncoder, session: CpuSession, batch: int, length: int
) -> None:
    sizes = {"batch": batch, "sequence": length}
    feeds = ids_inputs(5000, 24).draw(sizes, lengths=[length, max(1, length // 2)][:batch])
    with torch.no_grad():
        expected = encoder(*(torch.from_numpy(array) for array in feeds.values())).numpy()
    (output,) = session.run(feeds).values()
    assert output.shape == (batch, length, 128)
    assert np.abs(output - expected).max() <= ATOL


def test_half_padded_and_all_padding_rows_equal_pytorch(
    encoder: SharedEncoder, session: CpuSession
) -> None:
    feeds = ids_inputs(5000, 24).draw({"batch": 3, "sequence": 8}, lengths=[8, 4, 0])
    with torch.no_grad():
        expected = encoder(*(torch.from_numpy(array) for array in feeds.values())).numpy()
    output = session.run(feeds)["last_hidden_state"]
    for row in range(3):
        assert np.abs(output[row] - expected[row]).max() <= ATOL
    unpadded = session.run(feeds | {"attention_mask": np.ones((3, 8), np.int64)})
    assert np.abs(output[1] - unpadded["last_hidden_state"][1]).max() > 1e-3


def test_inputs_outputs_and_weights_have_stable_names(captured: Captured) -> None:
    graph = captured.model.graph
    assert [(v.name, str(v.shape)) for v in graph.inputs] == [
        ("input_ids", "[batch,sequence]"),
        ("attention_mask", "[batch,sequence]"),
    ]
    assert [v.name for v in graph.outputs] == ["last_hidden_state"]
    shape = graph.outputs[0].shape
    assert shape is not None
    assert [str(size) for size in shape] == ["batch", "sequence", "128"]
    assert {
        "token_embedding.weight",
        "attention_blocks.0.attention.in_proj_weight",
        "ffn_blocks.0.up.weight",
    } <= set(graph.initializers)


def test_a_sequence_beyond_the_maximum_is_an_error_with_and_without_our_check(
    artifact: Artifact, session: CpuSession
) -> None:
    feeds = ids_inputs(5000, 25).draw({"batch": 1, "sequence": 25})
    checked = CpuSession(artifact.models()["fp32"], inputs=artifact.inputs)
    with pytest.raises(ExportError, match="has sequence 25, beyond the model's maximum 24"):
        checked.run(feeds)
    with pytest.raises(ExportError, match="failed to run"):
        session.run(feeds)


def test_an_id_outside_the_vocabulary_is_an_error_with_and_without_our_check(
    artifact: Artifact, session: CpuSession
) -> None:
    feeds = ids_inputs(5000, 24).draw({"batch": 1, "sequence": 3})
    feeds["input_ids"][0, 1] = 5000
    checked = CpuSession(artifact.models()["fp32"], inputs=artifact.inputs)
    with pytest.raises(ExportError, match="holds id 5000, outside the valid range 0 to 4999"):
        checked.run(feeds)
    with pytest.raises(ExportError, match="failed to run"):
        session.run(feeds)


def test_the_file_tells_nothing_of_the_machine_and_adds_less_than_a_twentieth(
    artifact: Artifact, captured: Captured
) -> None:
    path = artifact.models()["fp32"]
    content = path.read_bytes()
    stored = stored_bytes(ir.load(path))
    assert 2_900_000 < stored < 3_100_000
    assert len(content) < 1.05 * stored
    model = onnx.load(path)
    for holder in (model.graph, *model.graph.node):  # texts, not the weights' random bytes
        for tensor in getattr(holder, "initializer", ()):
            tensor.raw_data = b""
        for attribute in getattr(holder, "attribute", ()):
            attribute.t.raw_data = b""
    texts = str(model)  # every field, without the bytes that give their lengths
    for trace in ("site-packages", 'File "', "/", "\\", str(Path.cwd()), "tests"):
        assert trace not in texts, trace
    assert b"site-packages" not in content
    before = ir.to_proto(captured.model).SerializeToString()
    assert b"site-packages" in before  # what the passes had to remove


# Modules of one's own


def test_a_buffer_may_be_called_like_an_input(tmp_path: Path) -> None:
    loaded = as_loaded(Own(lambda m, x: m.linear(x) * m.x, x=torch.arange(8.0)))
    session = session_of(graph_of(loaded), tmp_path)
    assert worst_error(loaded, session) <= ATOL


def several_outputs(m: Own, x: Tensor) -> dict[str, Any]:
    h = m.linear(x)
    return {
        "same": x,
        "a": h,
        "b": h,
        "weight": m.linear.weight,
        "linear": {"add": h + 1, "pair": (h + 2, [h + 3])},
    }


def test_every_output_has_its_own_name_even_an_input_a_weight_or_one_given_twice(
    tmp_path: Path,
) -> None:
    loaded = as_loaded(Own(several_outputs))
    model = graph_of(loaded)
    names = ["same", "a", "b", "weight", "linear_add", "linear_pair_0", "linear_pair_1"]
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert [v.name for v in model.graph.outputs] == names
    assert worst_error(loaded, session_of(model, tmp_path)) <= ATOL


def test_two_outputs_of_one_name_are_refused() -> None:
    clash = Own(lambda m, x: {"a_b": x + 1, "a": {"b": m.linear(x)}})
    with pytest.raises(CaptureError, match="two tensors under one name: a_b, a_b"):
        capture(as_loaded(clash))


def test_a_forward_that_returns_no_tensor_is_refused() -> None:
    with pytest.raises(CaptureError, match="returns no tensor"):
        capture(as_loaded(Own(lambda m, x: {"loss": None, "n": 3})))


def test_a_fixed_sequence_length_is_an_error_that_names_it() -> None:
    fixed = Own(lambda m, x: m.linear(x) + m.positions, positions=torch.ones(7, 8))
    with pytest.raises(CaptureError, match=r"fixes 'sequence' of input 'x' to 7; .*--input"):
        capture(as_loaded(fixed))
    other = Own(lambda m, x: m.linear(x) + m.positions, positions=torch.ones(16, 8))
    with pytest.raises(CaptureError, match=r"fails on x \[2, 7, 8\]: RuntimeError"):
        capture(as_loaded(other))


@pytest.mark.parametrize("opset", [18, 20])
def test_the_chosen_opset_is_the_graphs(tmp_path: Path, opset: int) -> None:
    loaded = as_loaded(Own(lambda m, x: nn.functional.gelu(m.linear(x))))
    model = graph_of(loaded, opset=opset)
    assert model.opset_imports[""] == opset
    assert worst_error(loaded, session_of(model, tmp_path)) <= ATOL


@pytest.mark.parametrize("opset", [17, 24])
def test_an_unsupported_opset_is_refused_before_any_work(opset: int) -> None:
    with pytest.raises(CaptureError, match=f"opset {opset} is not supported; .* 18 to 23"):
        capture(as_loaded(Own(lambda m, x: pytest.fail("was run"))), opset=opset)


class Aliases(nn.Module):
    """Distinct Parameters over one storage, and equal values in separate ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(64, 64))
        self.alias = nn.Parameter(self.first.detach())
        self.equal = nn.Parameter(self.first.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Use the three one after the other."""
        return ((x @ self.first).tanh() @ self.alias).tanh() @ self.equal


@pytest.mark.parametrize(("dedupe", "copies"), [(True, 1), (False, 3)])
def test_equal_parameters_are_stored_once_if_deduplicated(
    tmp_path: Path, dedupe: bool, copies: int
) -> None:
    loaded = as_loaded(Aliases(), [InputSpec("x", "float32", ("batch", "sequence", 64))])
    model = graph_of(loaded, dedupe=dedupe)
    assert len(weights(model, 64 * 64)) == copies
    assert worst_error(loaded, session_of(model, tmp_path)) <= 1e-4  # sums of 64, 3 times


def test_a_weight_and_its_transpose_are_one_stored_copy(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(50, 8))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.table.t()).softmax(-1) @ self.table

    loaded = as_loaded(Tied())
    model = graph_of(loaded)
    assert weights(model, 400) == ["table"]
    assert worst_error(loaded, session_of(model, tmp_path)) <= ATOL


def test_zeros_of_both_signs_stay_apart_as_divisors(tmp_path: Path) -> None:
    width = 2000
    divide = Own(
        lambda m, x: {"above": x / m.plus, "below": x / m.minus},
        plus=torch.zeros(width),
        minus=-torch.zeros(width),
    )
    loaded = as_loaded(divide, [InputSpec("x", "float32", ("batch", width))])
    model = graph_of(loaded)
    outputs = session_of(model, tmp_path).run({"x": np.ones((1, width), np.float32)})
    assert (outputs["above"] == np.inf).all()
    assert (outputs["below"] == -np.inf).all()


def test_a_plain_tensor_attribute_is_stored_once_and_allowed_for(tmp_path: Path) -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))
            self.table = torch.randn(8, 32_768)  # 1 MiB

        def forward(self, x: Tensor) -> Tensor:
            return ((x * self.scale) @ self.table).tanh() @ self.table.t() / 32_768

    loaded = as_loaded(Plain())
    assert loaded.sharing.held_bytes == 32
    assert capture(loaded).constant_bytes == 2**20
    model = graph_of(loaded)
    assert len(weights(model, 8 * 32_768)) == 1
    assert stored_bytes(model) < 2**20 + 1000
    assert worst_error(loaded, session_of(model, tmp_path)) <= ATOL


def test_a_large_integer_buffer_is_no_broken_sharing(tmp_path: Path) -> None:
    table = torch.arange(100_000) % 8
    loaded = as_loaded(Own(lambda m, x: m.linear(x) + m.table.sum(), table=table))
    model = graph_of(loaded)
    assert len(weights(model, 100_000)) == 1
    assert worst_error(loaded, session_of(model, tmp_path)) <= 0.1  # next to 350,000


def test_large_computed_constants_are_computed_not_stored(tmp_path: Path) -> None:
    def forward(m: Own, x: Tensor) -> Tensor:
        grid = torch.arange(40_000, dtype=torch.float32).view(200, 200)
        return m.linear(x) + (grid / 40_000).max()

    loaded = as_loaded(Own(forward))
    model = graph_of(loaded)
    assert stored_bytes(model) < 8 * 8 * 4 + 8 * 4 + 1000
    assert worst_error(loaded, session_of(model, tmp_path)) <= ATOL


# Modes and switches


class Mixed(nn.Module):
    """One half in train mode, one in eval mode, with dropout in both."""

    def __init__(self, fail: bool = False) -> None:
        super().__init__()
        self.fail = fail
        self.first = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.9))
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.9))
        self.train()
        self.second.eval()
        self.second[1].train()

    def forward(self, x: Tensor) -> Tensor:
        """Fail while it is exported, if told to."""
        if self.fail and torch.compiler.is_exporting():
            raise RuntimeError("no such luck")
        return self.second(self.first(x))


def modes(module: nn.Module) -> list[bool]:
    return [member.training for member in module.modules()]


def test_the_graph_is_of_eval_mode_and_mixed_modes_are_restored(tmp_path: Path) -> None:
    module = Mixed()
    before = modes(module)
    assert before == [True, True, True, True, False, False, True]
    loaded = as_loaded(module)
    session = session_of(graph_of(loaded), tmp_path)
    assert modes(module) == before
    x = torch.ones(2, 3, 8)
    produced = torch.from_numpy(session.run({"x": x.numpy()})["output"])
    module.eval()
    with torch.no_grad():
        torch.testing.assert_close(produced, module(x), rtol=0, atol=ATOL)


@pytest.mark.parametrize("fast_path", [True, False])
def test_modes_and_the_fast_path_switch_are_restored_after_a_failure(fast_path: bool) -> None:
    module = Mixed(fail=True)
    before = modes(module)
    switch = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast_path)
    try:
        with pytest.raises(CaptureError, match=r"torch.export cannot capture .*no such luck"):
            capture(as_loaded(module))
        assert torch.backends.mha.get_fastpath_enabled() is fast_path
    finally:
        torch.backends.mha.set_fastpath_enabled(switch)
    assert modes(module) == before


class Nested(nn.Module):
    """One ``nn.TransformerEncoderLayer`` applied three times."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Mask what is padding."""
        x = self.embedding(input_ids)
        for _ in range(3):
            x = self.layer(x, src_key_padding_mask=attention_mask == 0)
        return x


def test_a_nested_encoder_layer_used_three_times_exports_without_its_fused_path(
    tmp_path: Path,
) -> None:
    inputs = ids_inputs(50, 24)
    loaded = as_loaded(Nested(), inputs.specs, inputs.limits)
    switch = torch.backends.mha.get_fastpath_enabled()
    model = graph_of(loaded)
    assert torch.backends.mha.get_fastpath_enabled() is switch
    assert len(weights(model, 3 * 16 * 16)) == 1
    session = session_of(model, tmp_path)
    for case in verification_cases(inputs):
        if case.name == "all-padding row":  # attention to nothing at all: 0 / 0 in PyTorch
            continue
        expected = run_source(loaded, case.feeds)
        assert worst_difference(expected, dict(session.run(case.feeds))) <= ATOL, case.name
    padded = inputs.draw({"batch": 2, "sequence": 8}, lengths=[8, 4])
    expected = run_source(loaded, padded)
    assert worst_difference(expected, dict(session.run(padded))) <= ATOL
