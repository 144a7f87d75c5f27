"""ONNX file in, artifact out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

from exporter import onnx_files
from exporter.accounting import stored_bytes
from exporter.artifact import Artifact
from exporter.cli.main import main
from exporter.errors import ArtifactError, CheckpointError
from exporter.pipeline import ExportOptions, export_model
from exporter.pipeline.layout import LayoutChoice
from exporter.runtimes.cpu import CpuSession
from tests.passes.helpers import signature
from tests.samples import names_in

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
SIZE = 40


def weight(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(np.float32) / 8


def save(path: Path, text: str, weights: dict[str, np.ndarray]) -> Path:
    """Write a graph whose text may use the names in ``weights``."""
    proto = onnx.parser.parse_model(HEADER + text.replace("SIZE", str(SIZE)))
    proto.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())
    return path


def layers(path: Path, count: int = 4) -> Path:
    """A stack of equal layers, each with a copy of the weight."""
    nodes = [f"h{i} = MatMul(x{i}, w{i})  x{i + 1} = Tanh(h{i})" for i in range(count)]
    text = f"main (float[batch,SIZE] x0) => (float[batch,SIZE] x{count}) {{ {' '.join(nodes)} }}"
    return save(path, text, {f"w{i}": weight(0) for i in range(count)})


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def outside(path: Path) -> Path:
    """Move the weights of a file to ``<path>_data``."""
    ir.save(ir.load(path), path, external_data=f"{path.name}_data", size_threshold_bytes=0)
    return path


def test_copies_of_one_layer_become_a_loop_over_one(tmp_path: Path) -> None:
    made = export_model(layers(tmp_path / "in" / "model.onnx"), tmp_path / "out")
    manifest = made.manifest
    assert manifest["verdict"] == "passed"
    assert manifest["layout"]["chosen"] == "rolled"
    assert [loop["iterations"] for loop in manifest["layout"]["loops"]] == [4]
    assert manifest["source"]["stored_bytes"] == 4 * 4 * SIZE**2
    assert manifest["stored_bytes"] == 4 * SIZE**2 + 8  # and the trip count
    assert signature(ir.load(made.models()["fp32"])) == signature(
        ir.load(tmp_path / "in" / "model.onnx")
    )


def test_initializers_that_are_outputs_keep_names_order_and_values(tmp_path: Path) -> None:
    text = """main (float[batch,SIZE] x)
    => (float[SIZE,SIZE] b, float[batch,SIZE] y, float[SIZE,SIZE] a)
    { h = MatMul(x, a)  y = MatMul(h, c) }"""
    source = save(tmp_path / "model.onnx", text, {"a": weight(0), "b": weight(0), "c": weight(0)})
    made = export_model(source, tmp_path / "out")
    path = made.models()["fp32"]
    assert made.manifest["outputs"] == ["b", "y", "a"]
    assert signature(ir.load(path)) == signature(ir.load(source))
    outputs = CpuSession(path).run({"x": np.ones((1, SIZE), np.float32)})
    assert outputs["a"].tobytes() == outputs["b"].tobytes() == weight(0).tobytes()
    # Each output keeps its own; the third weight has become one of them.
    assert made.manifest["stored_bytes"] == 2 * 4 * SIZE**2


@pytest.mark.parametrize("equal", [True, False])
def test_weights_of_two_branches_are_one_only_if_they_are_equal(
    tmp_path: Path, equal: bool
) -> None:
    proto = onnx.parser.parse_model(
        HEADER
        + """main (float[batch,SIZE] x, bool c) => (float[batch,SIZE] y) { y = If (c) <
        then_branch = t () => (float[batch,SIZE] a) { a = MatMul(x, w) },
        else_branch = e () => (float[batch,SIZE] b) { h = MatMul(x, w) b = Neg(h) }> }""".replace(
            "SIZE", str(SIZE)
        )
    )
    values = [weight(0), weight(0) if equal else weight(1)]
    for attribute, value in zip(proto.graph.node[0].attribute, values, strict=True):
        attribute.g.initializer.append(numpy_helper.from_array(value, "w"))
    source = tmp_path / "model.onnx"
    source.write_bytes(proto.SerializeToString())
    path = export_model(source, tmp_path / "out").models()["fp32"]
    assert stored_bytes(ir.load(path)) == (1 if equal else 2) * 4 * SIZE**2
    x = np.random.default_rng(0).standard_normal((3, SIZE)).astype(np.float32)
    for condition in (True, False):
        feeds = {"x": x, "c": np.array(condition)}
        one, other = CpuSession(source).run(feeds), CpuSession(path).run(feeds)
        assert one["y"].tobytes() == other["y"].tobytes()


@pytest.mark.parametrize("layout", ["auto", "unrolled"])
def test_exporting_three_times_to_one_place_gives_the_same_bytes(
    tmp_path: Path, layout: str
) -> None:
    source = outside(layers(tmp_path / "in" / "model.onnx"))
    before, seen = digests(source.parent), []
    for _ in range(3):
        options = ExportOptions(replace=True, layout=layout)  # type: ignore[arg-type]
        made = export_model(source, tmp_path / "out", options)
        seen.append(digests(made.folder))
    assert seen[0] == seen[1] == seen[2]
    assert names_in(tmp_path / "out" / "onnx") == ["model.onnx"]
    assert digests(source.parent) == before


def test_an_artifact_is_a_source_and_is_not_replaced_by_its_own_export(tmp_path: Path) -> None:
    export_model(layers(tmp_path / "model.onnx"), tmp_path / "first")
    before = digests(tmp_path / "first")
    for source in ("first", "first/onnx", "first/onnx/model.onnx"):
        for destination in ("first", "first/onnx", "first/onnx/model.onnx"):
            with pytest.raises(ArtifactError):
                export_model(tmp_path / source, tmp_path / destination, ExportOptions(replace=True))
    assert digests(tmp_path / "first") == before
    again = export_model(tmp_path / "first", tmp_path / "second")
    assert again.manifest["stored_bytes"] == 4 * SIZE**2 + 8


def test_a_large_model_comes_with_its_external_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = layers(tmp_path / "model.onnx")
    monkeypatch.setattr(onnx_files, "EXTERNAL_DATA_ABOVE_BYTES", 4 * SIZE**2)
    made = export_model(source, tmp_path / "out")
    assert names_in(made.folder / "onnx") == ["model.onnx", "model.onnx_data"]
    assert (made.folder / "onnx" / "model.onnx_data").read_bytes() == weight(0).tobytes()
    sizes = [path.stat().st_size for path in (made.folder / "onnx").iterdir()]
    assert made.manifest["file_bytes"] == sum(sizes)
    assert "onnx/model.onnx_data" in made.manifest["files"]
    Artifact.load(made.folder, check_hashes=True)


def bad_locations(folder: Path) -> dict[str, str]:
    """Locations of external data that must be refused, and what the message says."""
    (folder.parent / "data").write_bytes(bytes(4 * SIZE**2))
    (folder / "link").symlink_to(folder.parent / "data")
    (folder / "short").write_bytes(bytes(4 * SIZE**2 - 1))
    return {
        "../data": "leads out of the model's folder",
        str(folder.parent / "data"): "is an absolute path",
        "link": "outside the folder",
        "short": "is truncated",
    }


def test_external_data_from_elsewhere_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    source = layers(tmp_path / "in" / "model.onnx", count=1)
    proto = onnx.load(source)
    for location, why in bad_locations(source.parent).items():
        entry = proto.graph.initializer[0]
        entry.ClearField("raw_data")
        del entry.external_data[:]
        entry.data_location = onnx.TensorProto.EXTERNAL
        entry.external_data.add(key="location", value=location)
        source.write_bytes(proto.SerializeToString())
        with pytest.raises(CheckpointError, match=why) as raised:
            export_model(source, tmp_path / "out")
        assert location in str(raised.value)
        result = CliRunner().invoke(main, [str(source), "-o", str(tmp_path / "out")])
        assert result.exit_code == 1
        assert why in result.stderr and location in result.stderr
        assert names_in(tmp_path) == ["data", "in"]


def test_a_model_in_a_hugging_face_cache_is_exported(tmp_path: Path) -> None:
    plain = outside(layers(tmp_path / "plain" / "model.onnx"))
    entry = tmp_path / "models--org--name"
    snapshot = entry / "snapshots" / "abc"
    (snapshot / "onnx").mkdir(parents=True)
    (entry / "blobs").mkdir()
    for number, name in enumerate(("model.onnx", "model.onnx_data")):
        (plain.parent / name).rename(entry / "blobs" / str(number))
        (snapshot / "onnx" / name).symlink_to(f"../../../blobs/{number}")
    before = digests(entry)
    for source in (snapshot, snapshot / "onnx" / "model.onnx"):
        made = export_model(source, tmp_path / "out", ExportOptions(replace=True))
        assert made.manifest["stored_bytes"] == 4 * SIZE**2 + 8
    assert digests(entry) == before


def test_the_command_repairs_a_file(tmp_path: Path) -> None:
    source = layers(tmp_path / "model.onnx")
    result = CliRunner().invoke(main, [str(source), "--dedupe", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert Artifact.load(tmp_path / "out").manifest["stored_bytes"] == 4 * SIZE**2 + 8


# Files that are rolled already


def test_a_file_that_holds_loops_is_called_rolled_and_can_be_written_out(tmp_path: Path) -> None:
    first = export_model(layers(tmp_path / "in" / "model.onnx"), tmp_path / "out")
    rolled = first.models()["fp32"]
    again = export_model(rolled, tmp_path / "again").manifest["layout"]
    assert (again["asked"], again["chosen"]) == ("auto", "rolled")
    assert again["why"] == (
        "the source came with loops; beyond them, no run of equal layers was found"
    )
    assert [(loop["iterations"], loop["nodes"]) for loop in again["loops"]] == [(4, 3)]
    result = CliRunner().invoke(main, [str(rolled), "-o", str(tmp_path / "shown")])
    assert "loops of passes × nodes: 4 × 3" in result.stdout
    options = ExportOptions(layout="unrolled")
    out = export_model(rolled, tmp_path / "written out", options)
    assert (out.manifest["layout"]["chosen"], out.manifest["layout"]["loops"]) == ("unrolled", [])
    assert "Loop" not in {node.op_type for node in ir.load(out.models()["fp32"]).graph}


@pytest.mark.parametrize("layout", ["auto", "unrolled"])
def test_a_loop_that_cannot_be_written_out_is_said_to_stay(
    tmp_path: Path, layout: LayoutChoice
) -> None:
    text = """main (float[batch,SIZE] x, int64 n) => (float[batch,SIZE] y) {
        y = Loop (n, yes, x) <body = b (int64 i, bool on, float[batch,SIZE] h)
            => (bool go, float[batch,SIZE] out)
            { go = Identity(on) g = MatMul(h, w) out = Tanh(g) }> }"""
    source = save(tmp_path / "model.onnx", text, {"w": weight(0), "yes": np.array(True)})
    found = export_model(source, tmp_path / "out", ExportOptions(layout=layout)).manifest["layout"]
    assert found["chosen"] == "rolled"
    assert [(loop["iterations"], loop["nodes"]) for loop in found["loops"]] == [(None, 3)]
    if layout == "unrolled":
        assert found["why"] == (
            "a loop of the source cannot be written out: its trip count is not constant"
        )
    result = CliRunner().invoke(main, [str(source), "-o", str(tmp_path / "shown")])
    assert "loops of passes × nodes: ? × 3" in result.stdout


# Outputs of whole numbers


def test_whole_numbers_of_the_input_file_are_compared_whatever_they_are_called(
    tmp_path: Path,
) -> None:
    text = """main (float[batch,SIZE] x) => (float[batch,SIZE] y, int64[batch] layers_used)
        { y = MatMul(x, w) layers_used = ArgMax<axis = 1, keepdims = 0>(y) }"""
    source = save(tmp_path / "model.onnx", text, {"w": weight(0)})
    options = ExportOptions(precisions=("fp32", "int8"))
    made = export_model(source, tmp_path / "out", options)
    for model in made.manifest["models"]:
        outputs = model["verification"]["cases"][0]["outputs"]
        assert [output["output"] for output in outputs] == ["y", "layers_used"]
        assert [output["differing"] for output in outputs] == [None, 0]
        assert outputs[1]["max_abs"] is None


# What grows


def growth(made: Artifact) -> list[str]:
    return [notice for notice in made.manifest["notices"] if "larger than" in notice]


def test_a_file_with_nothing_to_share_that_grows_is_said_to(tmp_path: Path) -> None:
    text = "main (float[batch,SIZE] x) => (float[batch,SIZE] y) "
    nodes = "{ a = MatMul(x, w) b = Tanh(a) c = MatMul(b, w) y = Tanh(c) }"
    source = save(tmp_path / "model.onnx", text + nodes, {"w": weight(0)})
    made = export_model(source, tmp_path / "out")
    before, after = source.stat().st_size, made.manifest["file_bytes"]
    assert growth(made) == [
        f"onnx/model.onnx is larger than the input file, {after:,} bytes against {before:,}: "
        "there was next to nothing to save"
    ]
    only = export_model(source, tmp_path / "int8", ExportOptions(precisions=("int8",)))
    assert growth(only) == []  # what the artifact holds is smaller
    assert (
        growth(export_model(outside(layers(tmp_path / "b" / "model.onnx")), tmp_path / "c")) == []
    )


def test_a_precision_that_makes_a_tiny_file_larger_is_said_to(tmp_path: Path) -> None:
    text = "main (float[batch,4] x) => (float[batch,4] y) { y = MatMul(x, w) }"
    source = save(tmp_path / "model.onnx", text, {"w": weight(0)[:4, :4]})
    made = export_model(source, tmp_path / "out", ExportOptions(precisions=("int8",)))
    sizes = [made.manifest["models"][0]["file_bytes"], made.manifest["file_bytes"]]
    assert growth(made) == [
        f"int8 is larger than float32, {sizes[0]:,} bytes against {sizes[1]:,}: so small a model "
        "gains nothing by it; use fp32"
    ]
