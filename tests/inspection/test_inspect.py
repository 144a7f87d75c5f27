from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import exporter.inspection
from exporter.artifact import Artifact
from exporter.errors import ArtifactError, CheckpointError
from exporter.inspection import failed_gates, inspect_path
from exporter.pipeline import ExportOptions, export_model
from tests.inspection.helpers import inspect_model, matrix
from tests.passes.helpers import build

TIED = "main (int64[2] i) => (float[2,8] y) { e = Gather(t, i) v = Identity(w) y = MatMul(e, v) }"
WEIGHTS = {"t": matrix(8, 8), "w": matrix(8, 8), "unused": matrix(6, 6)}


def test_the_public_names_are_these() -> None:
    assert exporter.inspection.__all__ == [
        "CopyGroup",
        "Inspection",
        "ModelInspection",
        "allowed_waste_bytes",
        "failed_gates",
        "inspect_path",
        "parse_bytes",
    ]


def test_a_file_is_counted_to_the_byte(tmp_path: Path) -> None:
    found = inspect_model(build(TIED, WEIGHTS), tmp_path)
    assert (found.stored_bytes, found.unique_bytes, found.wasted_bytes) == (656, 400, 256)
    assert found.file_bytes == (tmp_path / "model.onnx").stat().st_size
    assert found.unused_bytes == 144
    assert (found.tensors, found.nodes, found.opset) == (3, 3, 20)
    assert found.transfer is not None
    assert 300 < found.transfer.brotli_bytes < found.file_bytes


def test_the_json_form_has_these_keys_and_no_others(tmp_path: Path) -> None:
    inspect_model(build(TIED, WEIGHTS), tmp_path)
    record = inspect_path(tmp_path / "model.onnx").to_dict()
    assert json.loads(json.dumps(record)) == record
    assert set(record) == {"schema", "path", "kind", "artifact", "models"}
    assert (record["schema"], record["kind"], record["artifact"]) == (2, "file", None)
    (model,) = record["models"]
    assert list(model) == [
        "path", "variant", "verdict", "coverage", "errors_by_depth", "opset", "nodes", "tensors",
        "unique_bytes", "stored_bytes", "wasted_bytes", "file_bytes", "annotation_bytes",
        "unused_bytes", "transfer", "copies", "operators", "functions", "rolled", "quantizer",
        "repair",
    ]  # fmt: skip
    assert model["copies"][0] == {
        "kinds": ["exact", "aliased"],
        "dtype": "FLOAT",
        "shape": [8, 8],
        "wasted_bytes": 256,
        "packed_from": [],
        "tensors": [
            {
                "name": "t",
                "graph": "main",
                "place": "initializer",
                "stored_bytes": 256,
                "behind": [],
                "uses": 1,
                "overridable": False,
                "transposed": False,
            },
            {
                "name": "w",
                "graph": "main",
                "place": "initializer",
                "stored_bytes": 256,
                "behind": ["Identity"],
                "uses": 1,
                "overridable": False,
                "transposed": False,
            },
        ],
    }
    assert model["operators"][0] == {
        "operator": "Gather",
        "top_level": 1,
        "in_bodies": 0,
        "in_functions": 0,
    }


def test_a_hidden_weight_or_too_many_copies_are_worth_a_repair(tmp_path: Path) -> None:
    hidden = inspect_model(build(TIED, WEIGHTS), tmp_path)
    path = tmp_path / "model.onnx"
    assert hidden.repair == f"albert-export {path} --dedupe -o model-onnx"
    plain = "main (int64[2] i) => (float[2,8] y) { e = Gather(t, i) y = MatMul(e, w) }"
    assert inspect_model(build(plain, WEIGHTS), tmp_path).repair is None
    large = {"t": matrix(80, 80), "w": matrix(80, 80)}
    text = plain.replace("[2,8]", "[2,80]")
    assert inspect_model(build(text, large), tmp_path).repair == hidden.repair


def test_the_repair_can_be_pasted_whatever_the_name(tmp_path: Path) -> None:
    path = tmp_path / "my model's.onnx"
    ir.save(build(TIED, WEIGHTS), path)
    (found,) = inspect_path(path, transfer=False).models
    assert found.repair is not None
    assert found.repair.endswith("""my model'"'"'s.onnx' --dedupe -o 'my model'"'"'s-onnx'""")


def test_a_folder_gives_each_of_its_models(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    for name in ("b.onnx", "onnx/a.onnx"):
        ir.save(build(TIED, WEIGHTS), tmp_path / name)
    found = inspect_path(tmp_path, transfer=False)
    assert found.kind == "folder"
    assert [Path(m.path).name for m in found.models] == ["b.onnx", "a.onnx"]
    assert found.models[0].transfer is None


def test_an_artifact_gives_its_variants_and_its_verdicts(artifact: Artifact) -> None:
    found = inspect_path(artifact.folder, transfer=False)
    assert found.kind == "artifact"
    assert found.verdict == "passed"
    assert found.scheme == artifact.manifest["scheme"]
    assert [(m.variant, m.verdict) for m in found.models] == [
        ("fp32", "passed"),
        ("baseline", "not run"),
    ]
    model, baseline = found.models
    assert model.file_bytes == artifact.manifest["file_bytes"]
    assert model.stored_bytes == artifact.manifest["stored_bytes"]
    assert model.is_shared
    (loop,) = artifact.manifest["layout"]["loops"]
    assert [(r.name, r.iterations) for r in model.rolled] == [(loop["loop"], loop["iterations"])]
    assert baseline.is_shared  # each of its copies has other values
    assert failed_gates(found, max_bytes=model.file_bytes, require_shared=True) == ()


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """An artifact with int8 and its baseline; one weight was kept, one could not be reached."""
    folder = tmp_path_factory.mktemp("reduced")
    layers = " ".join(f"h{i} = MatMul(x{i}, w) x{i + 1} = Tanh(h{i})" for i in range(3))
    text = f"""main (float[batch,64] x0, float[64,n] v) => (float[batch,64] y, float[40,n] l)
        {{ {layers} y = MatMul(x3, head) l = MatMul(left, v) }}"""
    scale = np.float32(0.1)
    weights = {
        "w": matrix(64, 64) * scale,
        "head": matrix(64, 64, 1) * scale,
        "left": matrix(40, 64, 2),
    }
    ir.save(build(text, weights), folder / "model.onnx")
    options = ExportOptions(precisions=("fp32", "int8"), keep=("head",), with_baseline=True)
    return export_model(folder / "model.onnx", folder / "out", options)


def test_an_artifact_gives_coverage_and_errors_as_its_manifest_has_them(reduced: Artifact) -> None:
    found = inspect_path(reduced.folder, transfer=False)
    models = {model.variant: model for model in found.models}
    records = {record["variant"]: record for record in reduced.manifest["models"]}
    assert models["fp32"].coverage is None
    assert models["fp32"].errors_by_depth == ()
    coverage = models["int8"].coverage
    assert coverage is not None
    assert coverage == records["int8"]["coverage"]
    assert [left["value"] for left in coverage["skipped"]] == ["head", "left"]
    as_json = models["int8"].to_dict()
    assert as_json["coverage"] == records["int8"]["coverage"]
    assert as_json["errors_by_depth"] == records["int8"]["errors_by_depth"]
    assert [entry["uses"] for entry in as_json["errors_by_depth"]] == [1, 2, 3]
    assert models["int8"].quantizer.count("reduced") == coverage["operations_reached"] == 1


def test_every_unshared_baseline_is_exempt_from_the_size_limit(reduced: Artifact) -> None:
    found = inspect_path(reduced.folder, transfer=False)
    sizes = {model.variant: model.file_bytes for model in found.models}
    assert sizes["baseline-int8"] > sizes["int8"]
    shipped = [model.variant for model in found.models if model.is_shipped]
    assert shipped == ["fp32", "int8"]
    (failure,) = failed_gates(found, max_bytes=sizes["fp32"] - 1)
    assert "onnx/model.onnx has" in failure


def test_copies_of_a_few_bytes_are_counted_but_not_worth_a_look(tmp_path: Path) -> None:
    def equal(*sizes: int) -> dict[str, np.ndarray]:
        return {f"{side}{n}": np.full(n, n, np.int64) for n in sizes for side in "ab"}

    idle = "main (float[1] x) => (float[1] y) { y = Neg(x) }"
    found = inspect_model(build(idle, equal(1, 32, 33)), tmp_path)
    assert found.wasted_bytes == 8 + 256 + 264
    assert [group.wasted_bytes for group in found.copies] == [264, 256, 8]
    assert [group.wasted_bytes for group in found.notable_copies] == [264]
    many = {f"c{n}": np.zeros(4, np.int64) for n in range(10)}
    (group,) = inspect_model(build(idle, many), tmp_path).notable_copies
    assert group.wasted_bytes == 9 * 32
    lost = {f"{side}{n}": np.full(30, n, np.int64) for n in range(80) for side in "ab"}
    unshared = inspect_model(build(idle, lost), tmp_path)
    assert not unshared.is_shared  # so many small ones are one large waste
    assert len(unshared.notable_copies) == 80


def test_an_artifact_with_a_changed_byte_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    folder = shutil.copytree(artifact.folder, tmp_path / "copy")
    path = folder / "onnx/model.onnx"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="is not the file its manifest describes"):
        inspect_path(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "is a git-lfs pointer"),
        (b"PK\x03\x04rest", "is a zip archive, as PyTorch writes"),
        (b"<!DOCTYPE html><html>", "is text, not a model"),
        (b"\xff" * 200, "is not a readable ONNX file"),
    ],
)
def test_what_is_no_onnx_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as raised:
        inspect_path(path)
    assert "\n" not in str(raised.value)


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.onnx cannot be read: No such file"):
        inspect_path(tmp_path / "none.onnx")
    with pytest.raises(CheckpointError, match=r"holds no \.onnx file and no albert-export\.json"):
        inspect_path(tmp_path)


def test_a_file_cut_anywhere_is_an_error_of_ours_or_a_smaller_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    ir.save(build(TIED, WEIGHTS), path)
    whole = path.read_bytes()
    refused = 0
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            inspect_path(path, transfer=False)
        except CheckpointError:
            refused += 1
    assert refused > 0.9 * len(whole) / 7


def test_damaged_texts_and_types_are_errors_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    proto = ir.to_proto(build(TIED, WEIGHTS))
    path.write_bytes(proto.SerializeToString().replace(b"MatMul", b"Mat\xfful"))
    with pytest.raises(CheckpointError, match="it has a node of the type"):
        inspect_path(path)
    proto.graph.initializer[0].data_type = 87
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match="is damaged: 87 is not a valid DataType"):
        inspect_path(path)
    text = "main (float[1] x) => (float[1] y) { c = Constant <value = float[1] {1}> () y = Neg(c) }"
    proto = ir.to_proto(build(text))
    proto.graph.node[0].attribute[0].t.data_type = 87
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match="is damaged: 87 is not a valid DataType"):
        inspect_path(path)
    proto.graph.node[0].attribute[0].t.data_type = 0
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match=r"is damaged: .* data type: UNDEFINED"):
        inspect_path(path)
    proto = ir.to_proto(build(TIED, WEIGHTS))
    proto.graph.initializer[0].data_type = 0
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match="tensor 't' has no data type"):
        inspect_path(path)


def test_external_data_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    proto = ir.to_proto(build(TIED, WEIGHTS))
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match=r"\.\./weights\.bin.*refused"):
        inspect_path(path)


def test_what_is_said_to_be_unique_is_what_remains_after_repair(tmp_path: Path) -> None:
    """A fused file: packed copies, their parts, a tied table in both orientations."""
    from exporter.passes.recipes import run_recipe, share_recipe

    parts = [matrix(16, 16, seed) for seed in range(3)]
    packed = np.concatenate(parts, axis=1)
    table = matrix(20, 16, 9)
    weights = {
        "q": parts[0],
        "k": parts[1],
        "v": parts[2],
        "p0": packed,
        "p1": packed.copy(),
        "table": table,
        "head": np.ascontiguousarray(table.T),
    }
    model = build(
        "main (int64[2] i) => (float[2,20] y, float[2,48] r, float[2,48] s) {"
        " e = Gather(table, i) a = MatMul(e, q) b = MatMul(a, k) c = MatMul(b, v)"
        " r = MatMul(c, p0) s = MatMul(c, p1) y = MatMul(c, head) }",
        weights,
    )
    before = inspect_model(model, tmp_path)
    run_recipe(model, share_recipe())
    after = inspect_model(model, tmp_path)
    assert before.unique_bytes == after.stored_bytes == 3 * 1024 + 1280
    assert after.wasted_bytes == 0
