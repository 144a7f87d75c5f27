from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from exporter.checkpoint.graph_file import find_graph_file, load_graph, modernize
from exporter.errors import CheckpointError
from exporter.inputs import InputSpec

HEADER = '<ir_version: {}, opset_import: ["" : {}]>\n'


def save(path: Path, text: str, *, ir_version: int = 10, opset: int = 20) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    model = onnx.parser.parse_model(HEADER.format(ir_version, opset) + text)
    path.write_bytes(model.SerializeToString())
    return path


SUM = "main (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"


def test_a_graph_is_found_as_a_file_or_where_folders_hold_one(tmp_path: Path) -> None:
    path = save(tmp_path / "a" / "any name.onnx", SUM)
    assert find_graph_file(path) == path
    assert find_graph_file(path.parent) is None
    inner = save(tmp_path / "b" / "onnx" / "model.onnx", SUM)
    assert find_graph_file(tmp_path / "b") == inner
    outer = save(tmp_path / "b" / "model.onnx", SUM)
    assert find_graph_file(tmp_path / "b") == outer
    (tmp_path / "model.bin").write_bytes(b"")
    assert find_graph_file(tmp_path / "model.bin") is None


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_folder_with_pytorch_weights_is_a_checkpoint(tmp_path: Path, weights: str) -> None:
    save(tmp_path / "model.onnx", SUM)
    (tmp_path / weights).write_bytes(b"")
    assert find_graph_file(tmp_path) is None


def test_inputs_follow_from_the_graph(tmp_path: Path) -> None:
    text = """main (int64[batch,sequence] input_ids, int64[?,?] attention_mask, float[B,3] x)
    => (float[batch,sequence,2] y, float[?,?] m, float[B,3] z)
    <float[5,2] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}>
    {
        small = Cast <to = 6> (input_ids)
        y = Gather(table, small)
        m = Cast <to = 1> (attention_mask)
        z = Neg(x)
    }"""
    inputs = load_graph(save(tmp_path / "model.onnx", text)).inputs
    assert inputs.specs == (
        InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", 5),
        InputSpec("attention_mask", "int64", ("batch", "sequence"), "mask"),
        InputSpec("x", "float32", ("B", 3)),
    )


def test_inputs_can_be_described_but_not_changed(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", "main (int64[N,M] i) => (int64[N,M] y) { y = Neg(i) }")
    spec = load_graph(path, inputs=["i:int64[batch,sequence<=7]<9"]).inputs
    assert spec.specs == (InputSpec("i", "int64", ("batch", "sequence"), "ids", 9),)
    assert spec.limits == {"sequence": 7}
    with pytest.raises(CheckpointError, match=r"--input i must be int64\[N,M\]"):
        load_graph(path, inputs=["i:int64[batch]"])
    with pytest.raises(CheckpointError, match="--input j: this graph takes i"):
        load_graph(path, inputs=["j:int64[batch]"])


@pytest.mark.parametrize(
    "text",
    [
        "main (string[N] x) => (string[N] y) { y = Identity(x) }",
        "main (seq(float[N]) x) => (float[N] y) { i = Constant <value_int = 0> ()"
        " y = SequenceAt(x, i) }",
    ],
)
def test_inputs_that_cannot_be_drawn_are_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(CheckpointError, match=r"input 'x' of the graph has type .*only tensors of"):
        load_graph(save(tmp_path / "model.onnx", text))


def as_input(path: Path, ir_version: int) -> Path:
    """Save a model whose weight is listed as an input as well."""
    model = onnx.parser.parse_model(HEADER.format(ir_version, 9) + SUM)
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2]))
    path.write_bytes(model.SerializeToString())
    return path


def test_a_weight_that_an_old_format_lists_as_input_is_none(tmp_path: Path) -> None:
    loaded = load_graph(as_input(tmp_path / "model.onnx", 3))
    assert [value.name for value in loaded.model.graph.inputs] == ["x"]
    assert loaded.model.ir_version == 4
    assert not any("override" in notice for notice in loaded.notices)
    onnx.checker.check_model(ir.to_proto(loaded.model), full_check=True)


def test_a_weight_that_callers_may_override_stays_an_input_and_is_said_to(tmp_path: Path) -> None:
    loaded = load_graph(as_input(tmp_path / "model.onnx", 4))
    assert [value.name for value in loaded.model.graph.inputs] == ["x", "w"]
    assert [spec.name for spec in loaded.inputs.specs] == ["x"]
    assert loaded.notices[-1] == (
        "not shared or folded, as callers may override them: "
        "1 of the weights are inputs as well (w)"
    )


def test_an_old_format_without_weights_may_get_some(tmp_path: Path) -> None:
    text = "main (float[2] x) => (float[2] y) { y = Abs(x) }"
    model = ir.load(save(tmp_path / "model.onnx", text, ir_version=3, opset=9))
    assert modernize(model) == []
    tensor = ir.Tensor(np.ones(2, np.float32), name="w")
    model.graph.register_initializer(ir.Value(name="w", const_value=tensor))
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_the_hash_covers_the_external_data(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", SUM)
    one_file = load_graph(path).sha256
    line = f"{hashlib.sha256(path.read_bytes()).hexdigest()}  model.onnx\n"
    assert one_file == hashlib.sha256(line.encode()).hexdigest()
    data = tmp_path / "model.onnx_data"
    ir.save(ir.load(path), path, external_data=data.name, size_threshold_bytes=0)
    before = load_graph(path).sha256
    data.write_bytes(bytes(reversed(data.read_bytes())))
    assert load_graph(path).sha256 != before


def test_what_stands_beside_the_graph_comes_along(tmp_path: Path) -> None:
    save(tmp_path / "onnx" / "model.onnx", SUM)
    (tmp_path / "config.json").write_text('{"a": 1}')
    (tmp_path / "tokenizer.json").write_text("{}")
    loaded = load_graph(tmp_path / "onnx" / "model.onnx")
    assert loaded.config == {"a": 1}
    assert loaded.assets["tokenizer.json"] == tmp_path / "tokenizer.json"


@pytest.mark.parametrize("name", ["s21", "unk__7"])
def test_sizes_with_names_made_up_by_an_exporter_are_named_after_their_place(
    tmp_path: Path, name: str
) -> None:
    text = f"agraph (int64[{name}, {name}0] ids) => (int64[{name}, {name}0] y) {{ y = Neg (ids) }}"
    path = save(tmp_path / "model.onnx", text)
    assert load_graph(path).inputs.specs[0].shape == ("batch", "sequence")
