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
