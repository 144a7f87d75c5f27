"""Every precision through the whole pipeline, from checkpoints and ONNX files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from exporter.accounting import stored_bytes
from exporter.artifact import Artifact
from exporter.capture import Captured, capture
from exporter.checkpoint import LoadedModel
from exporter.inputs import verification_cases
from exporter.models import save_checkpoint
from exporter.pipeline import ExportOptions, export_model
from exporter.pipeline.layout import LayoutChoice
from exporter.precision import INT4_RUNS, PRECISIONS, TARGETS, Target
from exporter.reference import read_reference
from exporter.runtimes.cpu import CpuSession
from tests.pipeline.sources import (
    export,
    float_tensors,
    model_of,
    operators,
    record,
    stack_of_layers,
)
from tests.samples import names_in, tiny_encoder

LAYERS = 4
EVERY = tuple(precision.name for precision in PRECISIONS)
REDUCED = EVERY[1:]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose weights are many times the 16 KiB that shape constants may take."""
    path = tmp_path_factory.mktemp("precisions") / "model.pt"
    model = tiny_encoder(
        vocab_size=400, hidden_size=64, intermediate_size=128, num_hidden_layers=LAYERS
    )
    save_checkpoint(model, path)
    return path


@pytest.fixture(scope="module", autouse=True)
def capture_once(source: Path) -> Iterator[None]:
    """Capture each model once: it takes longer than all the rest."""
    kept: dict[object, Captured] = {}

    def clone(loaded: LoadedModel, *, opset: int) -> Captured:
        key = (loaded.source.sha256, opset)
        if key not in kept:
            kept[key] = capture(loaded, opset=opset)
        return replace(kept[key], model=kept[key].model.clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporter.pipeline.checkpoint.capture", clone)
        yield


def in_every_precision(source: Path, name: str, layout: LayoutChoice) -> Artifact:
    options = ExportOptions(
        precisions=EVERY, layout=layout, opset=21 if source.suffix == ".pt" else None
    )
    return export_model(source, source.parent / name, options)


@pytest.fixture(scope="module")
def rolled(source: Path) -> Artifact:
    return in_every_precision(source, "rolled", "auto")


@pytest.fixture(scope="module")
def unrolled(source: Path) -> Artifact:
    return in_every_precision(source, "unrolled", "unrolled")


@pytest.fixture(params=["rolled", "unrolled"])
def made(request: pytest.FixtureRequest) -> Artifact:
    return request.getfixturevalue(request.param)


# From a checkpoint


def test_every_precision_is_written_verified_and_reaches_every_weight(made: Artifact) -> None:
    Artifact.load(made.folder, check_hashes=True)
    assert made.manifest["verdict"] == "passed"
    assert [one["variant"] for one in made.manifest["models"]] == list(EVERY)
    # Three tables and their projection; Q, K, V as one, the attention's output, two of the FFN.
    operations = 3 + 4 * (1 if made.manifest["layout"]["chosen"] == "rolled" else LAYERS)
    for name in REDUCED:
        one = record(made, name)
        assert one["verification"]["verdict"] == "passed"
        assert one["verification"]["reference"] == "PyTorch"
        assert one["coverage"]["operations_reached"] == operations, name
        assert one["coverage"]["operations_total"] == operations, name
        assert (one["coverage"]["bytes_share"], one["coverage"]["full"]) == (1.0, True)
        assert one["coverage"]["skipped"] == []
        assert 0 < one["verification"]["relative_error"] <= one["tolerance"]
        assert one["precision"]["name"] == name
        assert len(one["weights"]) == 7


def test_what_is_stored_is_a_half_a_quarter_and_less(made: Artifact) -> None:
    weights = record(made, "int8")["coverage"]["bytes_total"]
    others = made.manifest["stored_bytes"] - weights
    for name, most in (("fp16", 0.5), ("int8", 0.27), ("int8-int4-tables", 0.3), ("int4", 0.19)):
        for one in (n for n in REDUCED if n == name or (name == "int4" and n.startswith("int4-"))):
            assert record(made, one)["stored_bytes"] <= most * weights + others + 512, one
            assert float_tensors(model_of(made, one)) == {}, one
            assert record(made, one)["stored_bytes"] == stored_bytes(model_of(made, one))


def test_each_file_computes_what_its_record_says(made: Artifact) -> None:
    exact = CpuSession(made.models()["fp32"])
    cases = verification_cases(made.inputs)
    for name in REDUCED:
        session = CpuSession(made.models()[name])
        difference = reference = 0.0
        for case in cases:
            (a,), (b,) = exact.run(case.feeds).values(), session.run(case.feeds).values()
            difference += float(np.square(a.astype(np.float64) - b).sum())
            reference += float(np.square(a.astype(np.float64)).sum())
        said = record(made, name)["verification"]["relative_error"]
        # The record compares with PyTorch, which is 1e-7 away from fp32.
        assert np.sqrt(difference / reference) == pytest.approx(said, rel=0.02, abs=1e-6), name


def test_files_have_the_names_of_transformers_js_and_then_their_own(rolled: Artifact) -> None:
    paths = {one["variant"]: one["path"] for one in rolled.manifest["models"]}
    assert paths == {
        "fp32": "onnx/model.onnx",
        "fp16": "onnx/model_fp16.onnx",
        "int8": "onnx/model_quantized.onnx",
        "int8-unsigned": "onnx/model_uint8.onnx",
        "int8-reduced": "onnx/model_int8.onnx",
        "int8-full": "onnx/model_int8-full.onnx",
        "int4-float": "onnx/model_q4.onnx",
        "int4-int8": "onnx/model_int4-int8.onnx",
        "int4-nbits": "onnx/model_int4-nbits.onnx",
        "int4-dequantize": "onnx/model_int4-dequantize.onnx",
        "int8-int4-tables": "onnx/model_int8-int4-tables.onnx",
    }
    assert names_in(rolled.folder / "onnx") == sorted(p.split("/")[1] for p in paths.values())


def test_each_form_runs_with_the_operators_it_is_named_after(made: Artifact) -> None:
    integer = {"int8", "int8-unsigned", "int8-reduced", "int8-full", "int4-int8"}
    integer.add("int8-int4-tables")
    for name in REDUCED:
        found = set(operators(model_of(made, name)))
        assert ("MatMulInteger" in found) is (name in integer), name
        assert ("MatMulNBits" in found) is (name == "int4-nbits"), name
        assert ("DequantizeLinear" in found) is (name == "int4-dequantize"), name
        assert ("Loop" in found) is (made.manifest["layout"]["chosen"] == "rolled"), name


def test_errors_are_given_after_each_pass_and_alike_in_both_layouts(
    rolled: Artifact, unrolled: Artifact
) -> None:
    for name in REDUCED:
        one, other = (record(a, name)["errors_by_depth"] for a in (rolled, unrolled))
        assert [entry["uses"] for entry in one] == list(range(1, LAYERS + 1)), name
        assert all(entry["relative_error"] > 0 for entry in one)
        assert [e["relative_error"] for e in one] == pytest.approx(
            [e["relative_error"] for e in other], rel=1e-3
        )
    assert record(rolled, "fp32")["errors_by_depth"] == []


# From an ONNX file


@pytest.mark.parametrize(("given", "layout"), [("rolled", "unrolled"), ("unrolled", "auto")])
def test_an_onnx_file_gives_the_same_sizes_as_the_checkpoint(
    given: str, layout: LayoutChoice, rolled: Artifact, unrolled: Artifact
) -> None:
    made = rolled if layout == "auto" else unrolled
    source = rolled if given == "rolled" else unrolled
    again = in_every_precision(source.models()["fp32"], f"onnx-{layout}", layout)
    assert again.manifest["layout"]["chosen"] == made.manifest["layout"]["chosen"]
    for name in REDUCED:
        one, other = record(made, name), record(again, name)
        assert other["verification"]["reference"] == "the input file"
        assert other["coverage"]["full"] is True
        assert other["coverage"]["bytes_reached"] == one["coverage"]["bytes_reached"], name
        assert abs(other["stored_bytes"] - one["stored_bytes"]) <= 512, name
        assert other["verification"]["relative_error"] == pytest.approx(
            one["verification"]["relative_error"], rel=0.02, abs=1e-6
        ), name


# Which files


def test_int8_alone_leaves_no_float_file_but_verifies_it_and_keeps_its_record(
    source: Path, rolled: Artifact
) -> None:
    alone = export(source, "int8", opset=21)
    assert names_in(alone.folder / "onnx") == ["model_quantized.onnx"]
    assert list(alone.models()) == ["int8"]
    graph = alone.manifest["float_graph"]
    assert graph["variant"] == "fp32"
    assert graph["verification"]["verdict"] == "passed"
    assert graph["verification"]["worst_abs_error"] <= 1e-5
    assert graph["file_bytes"] == rolled.manifest["file_bytes"] == alone.manifest["file_bytes"]
    assert rolled.manifest["float_graph"] is None
    content = alone.models()["int8"].read_bytes()
    assert content == rolled.models()["int8"].read_bytes()
    assert "onnx/model.onnx" not in alone.manifest["files"]


def test_external_data_of_a_float_file_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.onnx_files.EXTERNAL_DATA_ABOVE_BYTES", 10_000)
    alone = export(stack_of_layers(tmp_path, [3]), "int8")
    assert names_in(alone.folder / "onnx") == ["model_quantized.onnx"]
    assert alone.manifest["float_graph"]["file_bytes"] > 2 * 4 * 48**2


@pytest.mark.parametrize("target", TARGETS)
def test_int4_runs_as_suits_the_target(source: Path, target: Target) -> None:
    made = export(source, "int4", opset=21, target=target)
    one = record(made, "int4")
    assert one["path"] == "onnx/model_q4.onnx"
    assert one["precision"]["rules"][0]["run"] == INT4_RUNS[target]
    in_integers = "MatMulInteger" in operators(model_of(made, "int4"))
    assert in_integers is (INT4_RUNS[target] == "int8")


def test_the_same_input_gives_the_same_bytes_in_every_precision(source: Path) -> None:
    folders = []
    for name in ("once", "twice"):
        options = ExportOptions(precisions=("all", "int4-nbits"), opset=21)
        folders.append(export_model(source, source.parent / name, options).folder)
    one, other = (
        {str(path.relative_to(f)): path.read_bytes() for path in f.rglob("*") if path.is_file()}
        for f in folders
    )
    assert "onnx/model_int4-nbits.onnx" in one and "reference.json" in one
    assert one == other


# The unshared baseline


def test_the_baseline_is_there_in_every_precision_asked_for(source: Path) -> None:
    made = export(source, "all", opset=21, with_baseline=True)
    variants = [one["variant"] for one in made.manifest["models"]]
    assert variants == [
        *("fp32", "fp16", "int8", "int4"),
        *("baseline", "baseline-fp16", "baseline-int8", "baseline-int4"),
    ]
    assert names_in(made.folder / "baseline") == [
        "model.onnx", "model_fp16.onnx", "model_q4.onnx", "model_quantized.onnx",
    ]  # fmt: skip
    total = record(made, "baseline")["stored_bytes"]
    assert total == pytest.approx(made.manifest["unshared_bytes"], abs=512)
    shares = {"baseline-fp16": 0.52, "baseline-int8": 0.30, "baseline-int4": 0.19}
    for variant, share in shares.items():
        one = record(made, variant)
        assert one["stored_bytes"] <= share * total
        assert one["stored_bytes"] > 1.5 * record(made, variant.split("-")[1])["stored_bytes"]
        assert one["verification"] == {"verdict": "not run"}
        assert one["tolerance"] is None
        assert one["coverage"]["full"] is True
        assert one["coverage"]["operations_total"] == 3 + 4 * LAYERS
        CpuSession(made.models()[variant]).run(made.inputs.draw({"batch": 2, "sequence": 3}))


def test_weights_kept_by_their_name_are_kept_at_each_use_in_the_baseline(tmp_path: Path) -> None:
    made = export(stack_of_layers(tmp_path, [3]), "int8", with_baseline=True, keep=("w0",))
    assert [left["value"] for left in record(made, "int8")["coverage"]["skipped"]] == ["w0"]
    skipped = record(made, "baseline-int8")["coverage"]["skipped"]
    assert [left["value"] for left in skipped] == ["w0", "w0_use_2", "w0_use_3"]


# Elastic depth


def test_an_elastic_model_has_its_errors_at_every_depth_it_can_be_asked_for(
    source: Path, rolled: Artifact
) -> None:
    made = export(source, "int8", opset=21, elastic_depth=True)
    assert made.inputs.specs[-1].name == "depth"
    elastic, plain = (record(a, "int8")["errors_by_depth"] for a in (made, rolled))
    assert [entry["uses"] for entry in elastic] == list(range(1, LAYERS + 1))
    assert [entry["relative_error"] for entry in elastic] == pytest.approx(
        [entry["relative_error"] for entry in plain], rel=1e-3
    )
    session = CpuSession(made.models()["int8"])
    feeds = made.inputs.draw({"batch": 1, "sequence": 5})
    (whole,) = session.run(feeds).values()
    (first,) = session.run(feeds | {"depth": np.array(1, np.int64)}).values()
    assert not np.allclose(whole, first)


# Reference vectors


def test_the_reference_vectors_are_the_answers_of_the_source(
    rolled: Artifact, source: Path
) -> None:
    assert rolled.manifest["reference"] == "reference.json"
    cases = read_reference(rolled.folder / "reference.json")
    assert [case.name for case in cases] == ["padded", "3x8", "1x17", "1x1"]
    session = CpuSession(rolled.models()["fp32"])
    feeds = {case.name: case.feeds for case in verification_cases(rolled.inputs)}
    for case in cases:
        assert {n: a.tobytes() for n, a in case.feeds.items()} == {
            n: a.tobytes() for n, a in feeds[case.name].items()
        }
        for name, value in session.run(case.feeds).items():
            assert np.abs(value - case.outputs[name]).max() <= 1e-5


# ALBERT with a language model's head


def test_a_tied_output_layer_is_stored_once_in_every_precision(tmp_path: Path) -> None:
    vocabulary, width = 700, 32
    config = transformers.AlbertConfig(
        vocab_size=vocabulary,
        embedding_size=width,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        num_hidden_layers=3,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    transformers.AlbertForMaskedLM(config).save_pretrained(tmp_path / "albert")
    made = export_model(
        tmp_path / "albert", tmp_path / "out", ExportOptions(precisions=("all", "int4-nbits"))
    )
    assert made.manifest["verdict"] == "passed"
    for name in ("fp16", "int8", "int4", "int4-nbits"):
        one, model = record(made, name), model_of(made, name)
        assert (one["coverage"]["full"], one["coverage"]["bytes_share"]) == (True, 1.0), name
        assert float_tensors(model, above=vocabulary * 4) == {}  # its bias alone
        (table,) = (w for w in one["weights"] if len(w["operations"]) == 2)
        large = [
            value.const_value
            for value in model.graph.initializers.values()
            if value.const_value is not None and value.const_value.nbytes >= vocabulary * width / 2
            if vocabulary in value.const_value.shape
        ]
        assert len(large) == 1, name
        bits = {"fp16": 16, "int8": 8}.get(name, 4)
        assert large[0].nbytes == vocabulary * width * bits / 8
        assert table["saved_bytes"] >= vocabulary * width * (32 - bits - 2) / 8
