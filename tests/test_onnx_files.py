from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from exporter import onnx_files
from exporter.accounting import file_bytes
from exporter.errors import CheckpointError
from exporter.onnx_files import external_files, read_model, write_model
from tests.samples import names_in

SIZE = 100
WEIGHT = np.arange(SIZE, dtype=np.float32)
DATA = WEIGHT.tobytes()


def tensor(name: str, location: str, **entries: int | str) -> onnx.TensorProto:
    """A float[100] that lies in another file."""
    proto = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[SIZE])
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def save(path: Path, tensors: Sequence[onnx.TensorProto]) -> Path:
    """Write ``y = x + w + …``."""
    total, nodes = "x", []
    for index, one in enumerate(tensors):
        nodes.append(helper.make_node("Add", [total, one.name], [f"s{index}"]))
        total = f"s{index}"
    infos = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [SIZE]) for name in ("x", total)
    ]
    graph = helper.make_graph(nodes, "sums", infos[:1], infos[1:], list(tensors))
    opsets = [helper.make_opsetid("", 20)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    )
    return path


def values(path: Path) -> dict[str, bytes]:
    """Names and bytes of the weights of a file, read by onnx itself."""
    return {
        one.name: onnx.numpy_helper.to_array(one).tobytes()
        for one in onnx.load(path).graph.initializer
    }


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model of one weight in ``model.onnx_data``."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "model.onnx_data").write_bytes(DATA)
    return save(tmp_path / "in" / "model.onnx", [tensor("w", "model.onnx_data")])


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take any model for one that is too large for one file."""
    monkeypatch.setattr(onnx_files, "EXTERNAL_DATA_ABOVE_BYTES", 0)


def test_a_small_model_becomes_one_file_whatever_it_was(source: Path, tmp_path: Path) -> None:
    write_model(read_model(source), tmp_path / "out" / "model.onnx")
    assert names_in(tmp_path / "out") == ["model.onnx"]
    assert values(tmp_path / "out" / "model.onnx") == {"w": DATA}


def test_a_large_model_has_its_weights_in_one_file_beside_it(
    source: Path, tmp_path: Path, large: None
) -> None:
    path = tmp_path / "out" / "model.onnx"
    write_model(read_model(source), path)
    assert names_in(path.parent) == ["model.onnx", "model.onnx_data"]
    assert (path.parent / "model.onnx_data").read_bytes() == DATA
    (entry,) = onnx.load(path, load_external_data=False).graph.initializer
    assert {e.key: e.value for e in entry.external_data}["location"] == "model.onnx_data"
    assert file_bytes(path) == path.stat().st_size + len(DATA)
    assert values(path) == {"w": DATA}


def test_the_limit_counts_tensor_bytes_and_only_what_is_above_it_goes_outside(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_files, "EXTERNAL_DATA_ABOVE_BYTES", len(DATA))
    write_model(read_model(source), tmp_path / "out" / "model.onnx")
    assert names_in(tmp_path / "out") == ["model.onnx"]
    monkeypatch.setattr(onnx_files, "EXTERNAL_DATA_ABOVE_BYTES", len(DATA) - 1)
    write_model(read_model(source), tmp_path / "out" / "model.onnx")
    assert names_in(tmp_path / "out") == ["model.onnx", "model.onnx_data"]


@pytest.mark.parametrize("is_large", [False, True])
def test_saving_three_times_gives_the_same_bytes_and_leaves_the_source_alone(
    source: Path, tmp_path: Path, is_large: bool, request: pytest.FixtureRequest
) -> None:
    if is_large:
        request.getfixturevalue("large")
    before = digests(source.parent)
    model, seen = read_model(source), []
    for _ in range(3):
        write_model(model, tmp_path / "out" / "model.onnx")
        seen.append(digests(tmp_path / "out"))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 1 + is_large
    assert digests(source.parent) == before


@pytest.mark.parametrize("is_large", [False, True])
def test_a_model_can_be_saved_over_itself_again_and_again(
    source: Path, is_large: bool, request: pytest.FixtureRequest
) -> None:
    if is_large:
        request.getfixturevalue("large")
    model, sizes = read_model(source), []
    for _ in range(3):
        write_model(model, source)
        sizes.append(file_bytes(source))
        assert values(source) == {"w": DATA}
        assert len(names_in(source.parent)) == 1 + is_large
    write_model(read_model(source), source)
    assert {*sizes, file_bytes(source)} == {sizes[0]}
    assert values(source) == {"w": DATA}


@pytest.mark.parametrize("is_large", [False, True])
def test_small_tensors_of_a_large_model_are_in_the_model_file(
    tmp_path: Path, is_large: bool, request: pytest.FixtureRequest
) -> None:
    if is_large:
        request.getfixturevalue("large")
    one = tensor("small", "model.onnx_data", offset=0, length=4)
    one.dims[:] = [1]
    (tmp_path / "model.onnx_data").write_bytes(b"1234" + DATA)
    path = save(tmp_path / "model.onnx", [tensor("w", "model.onnx_data", offset=4), one])
    model = read_model(path)
    for _ in range(3):  # over its own data, whose offsets change
        write_model(model, path)
        assert values(path) == {"w": DATA, "small": b"1234"}
        if is_large:
            assert (tmp_path / "model.onnx_data").read_bytes() == DATA


def test_a_model_that_has_become_small_leaves_no_orphan_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out" / "model.onnx"
    monkeypatch.setattr(onnx_files, "EXTERNAL_DATA_ABOVE_BYTES", 0)
    write_model(read_model(source), path)
    monkeypatch.undo()
    write_model(read_model(path), path)
    assert names_in(path.parent) == ["model.onnx"]
    assert values(path) == {"w": DATA}


@pytest.mark.parametrize("is_large", [False, True])
def test_a_failing_save_leaves_what_was_there(
    source: Path, is_large: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        request.getfixturevalue("large")
    model, before = read_model(source), digests(source.parent)
    write = ir.save

    def full(model: ir.Model, path: Path, **options: object) -> None:
        write(model, path, **options)  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ir, "save", full)
    with pytest.raises(OSError, match="No space left"):
        write_model(model, source)
    assert digests(source.parent) == before


@pytest.mark.parametrize("is_large", [False, True])
def test_tensors_at_one_offset_are_read_each_and_written_the_same_each_time(
    tmp_path: Path, is_large: bool, request: pytest.FixtureRequest
) -> None:
    if is_large:
        request.getfixturevalue("large")
    (tmp_path / "data").write_bytes(DATA)
    tensors = [tensor(name, "data", offset=0, length=len(DATA)) for name in ("a", "b")]
    path = save(tmp_path / "model.onnx", tensors)
    model = read_model(path)
    assert external_files(model) == [tmp_path / "data"]
    out, sizes = tmp_path / "out" / "model.onnx", set()
    for _ in range(3):
        write_model(model, out)
        sizes.add(file_bytes(out))
        assert values(out) == {"a": DATA, "b": DATA}
    assert len(sizes) == 1
    assert (tmp_path / "data").read_bytes() == DATA


def test_data_files_without_tensors_are_not_the_models(source: Path) -> None:
    (source.parent / "other_data").write_bytes(b"x")
    assert external_files(read_model(source)) == [source.parent / "model.onnx_data"]


def test_initializers_of_inner_graphs_may_lie_outside_too(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]>\n'
        "main (float[100] x, bool c) => (float[100] y) { y = If (c) <"
        "then_branch = t () => (float[100] a) { a = Add(x, w) },"
        "else_branch = e () => (float[100] b) { b = Sub(x, x) }> }"
    )
    model.graph.node[0].attribute[0].g.initializer.append(tensor("w", "data"))
    (tmp_path / "data").write_bytes(DATA)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    write_model(read_model(path), tmp_path / "out" / "model.onnx")
    assert names_in(tmp_path / "out") == ["model.onnx"]
    (node,) = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    (weight,) = node.attribute[0].g.initializer
    assert onnx.numpy_helper.to_array(weight).tobytes() == DATA


def test_an_initializer_with_a_path_for_a_name_may_lie_outside(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    path = save(tmp_path / "model.onnx", [tensor("/encoder/w", "data")])
    (value,) = read_model(path).graph.initializers.values()
    assert value.const_value is not None
    assert value.const_value.tobytes() == DATA


def test_an_attribute_that_lies_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    path = save(tmp_path / "model.onnx", [])
    model = onnx.load(path)
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor("t", "data")))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=r"'Constant/value' is an attribute with external"):
        read_model(path)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../data", "leads out of the model's folder"),
        ("inner/../../data", "leads out of the model's folder"),
        ("..\\data", "leads out of the model's folder"),
        ("/etc/hostname", "is an absolute path"),
        ("", "is an absolute path or empty"),
        ("link", "is a link to .*data, outside the folder"),
        ("folder_link/data", "is a link to .*data, outside the folder"),
        ("missing", "is missing"),
        ("folder", "is missing"),
    ],
)
def test_data_that_is_not_in_the_models_folder_is_refused(
    tmp_path: Path, location: str, why: str
) -> None:
    (tmp_path / "data").write_bytes(DATA)
    path = save(tmp_path / "in" / "model.onnx", [tensor("w", location)])
    (path.parent / "link").symlink_to(tmp_path / "data")
    (path.parent / "folder_link").symlink_to(tmp_path)
    (path.parent / "folder").mkdir()
    with pytest.raises(CheckpointError, match=why) as raised:
        read_model(path)
    assert str(path) in str(raised.value)
    assert repr(location) in str(raised.value)


def test_a_relative_path_to_the_model_is_as_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_bytes(DATA)
    save(tmp_path / "in" / "model.onnx", [tensor("w", "../data")])
    monkeypatch.chdir(tmp_path / "in")
    with pytest.raises(CheckpointError, match="leads out of the model's folder"):
        read_model(Path("model.onnx"))


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"offset": 0, "length": 400}, "is truncated: .* up to 400, the file has 399"),
        ({}, "is truncated: .* up to 400, the file has 399"),
        ({"offset": 4096}, "is truncated: .* up to 4,496"),
        ({"offset": 0, "length": 399}, "takes 400 bytes but is given 399"),
    ],
)
def test_data_that_is_cut_short_or_out_of_range_is_refused(
    tmp_path: Path, entries: dict[str, int], why: str
) -> None:
    (tmp_path / "data").write_bytes(DATA[:-1])
    path = save(tmp_path / "model.onnx", [tensor("w", "data", **entries)])
    with pytest.raises(CheckpointError, match=why) as raised:
        read_model(path)
    assert str(tmp_path / "data") in str(raised.value)


@pytest.mark.parametrize("offset", ["many", -8])
def test_an_offset_that_is_none_makes_no_readable_file(tmp_path: Path, offset: int | str) -> None:
    (tmp_path / "data").write_bytes(DATA)
    path = save(tmp_path / "model.onnx", [tensor("w", "data", offset=offset)])
    with pytest.raises(CheckpointError, match=r"model\.onnx is damaged"):
        read_model(path)


def cache_entry(root: Path, data_target: str) -> Path:
    """Lay a model out as the Hugging Face cache does; return the link to it."""
    entry = root / "models--org--name"
    snapshot = entry / "snapshots" / "abc" / "onnx"
    snapshot.mkdir(parents=True)
    (entry / "blobs").mkdir()
    (entry / "blobs" / "1111").write_bytes(DATA)
    save(entry / "blobs" / "2222", [tensor("w", "model.onnx_data")])
    (snapshot / "model.onnx").symlink_to("../../../blobs/2222")
    (snapshot / "model.onnx_data").symlink_to(data_target)
    return snapshot / "model.onnx"


def test_links_of_a_hugging_face_cache_are_followed_inside_its_entry(tmp_path: Path) -> None:
    path = cache_entry(tmp_path, "../../../blobs/1111")
    model = read_model(path)
    (value,) = model.graph.initializers.values()
    assert value.const_value is not None
    assert value.const_value.tobytes() == DATA
    blobs = tmp_path / "models--org--name" / "blobs"
    assert external_files(model) == [blobs / "1111"]
    before = digests(blobs)
    write_model(model, tmp_path / "out" / "model.onnx")
    assert digests(blobs) == before
    assert values(tmp_path / "out" / "model.onnx") == {"w": DATA}


def test_links_of_a_hugging_face_cache_that_leave_its_entry_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA)
    path = cache_entry(tmp_path, os.fspath(tmp_path / "secret"))
    with pytest.raises(CheckpointError, match=r"is a link to .*secret, outside the folder"):
        read_model(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"not a model", "is not a readable ONNX file"),
        (b"", "is not an ONNX model: it holds no graph"),
    ],
)
def test_what_is_no_model_is_refused_by_name(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"model\.onnx {why}"):
        read_model(path)
    with pytest.raises(CheckpointError, match=r"none\.onnx cannot be read: No such file"):
        read_model(tmp_path / "none.onnx")
