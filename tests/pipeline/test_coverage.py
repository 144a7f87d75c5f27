"""How far a precision reaches, and what is said where it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from exporter.cli.main import main
from exporter.errors import PassError, VerificationError
from exporter.pipeline.layout import LayoutChoice
from tests.passes.helpers import op_types
from tests.passes.quantize_helpers import noise
from tests.passes.test_exported_probes import (
    VOCABULARY,
    WIDTH,
    Exporter,
    Probe,
    exported,
    load,
)
from tests.pipeline.sources import (
    export,
    float_tensors,
    model_of,
    operators,
    record,
    save,
    stack_of_layers,
)
from tests.samples import names_in

LOOPS = 6
THREE = ("fp16", "int8", "int4")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def one_line(result: Result) -> str:
    """The one line on standard error, after those of progress, of a failed run."""
    assert result.exit_code == 1, result.output
    (line,) = [line for line in result.stderr.splitlines() if not line.endswith(" …")]
    return line


# Weights behind aliases and transposes, tied tables


def expected_bytes(probe: Probe, name: str) -> int:
    """Bytes of weights, scales and biases of a probe, each stored once."""
    squares, table, biases = 4 * WIDTH**2, VOCABULARY * WIDTH, 4 * WIDTH + VOCABULARY
    tables = 1 if probe == "TIED" else 2
    numbers = squares + tables * table
    if name == "fp16":
        return 2 * numbers + 4 * biases
    channels = 4 * WIDTH + VOCABULARY  # one scale each, in float32
    if name == "int8":
        return numbers + 4 * channels + (0 if probe == "TIED" else 4 * WIDTH) + 4 * biases
    # int4, with a float16 scale per 32 numbers and the steps of products in 8 bits
    return numbers // 2 + 2 * numbers // 32 + 4 * channels + 4 * biases


@pytest.mark.parametrize("layout", ["auto", "unrolled"])
@pytest.mark.parametrize("probe", ["ALB", "TIED"])
@pytest.mark.parametrize("exporter", ["torchscript", "dynamo", "dynamo unoptimized"])
def test_every_use_behind_aliases_and_transposes_is_reached_and_no_float_copy_remains(
    tmp_path: Path, exporter: Exporter, probe: Probe, layout: LayoutChoice
) -> None:
    content = exported(exporter, probe, LOOPS)
    hidden = {"Identity", "Transpose"} & set(op_types(load(content)))
    assert hidden or exporter == "dynamo"
    source = tmp_path / "source.onnx"
    source.write_bytes(content)
    made = export(source, *THREE, layout=layout)
    layers = 1 if made.manifest["layout"]["loops"] else LOOPS
    for name in THREE:
        one, model = record(made, name), model_of(made, name)
        reached = (one["coverage"]["operations_reached"], one["coverage"]["operations_total"])
        assert reached == (4 * layers + 2, 4 * layers + 2), name
        assert (one["coverage"]["bytes_share"], one["coverage"]["skipped"]) == (1.0, [])
        assert float_tensors(model) == {}, name
        expected = expected_bytes(probe, name)
        assert expected <= one["stored_bytes"] <= expected + 256, name
        assert one["notices"] == []


def test_the_probe_hides_what_the_case_is_about() -> None:
    assert op_types(load(exported("torchscript", "ALB", LOOPS))).count("Identity") >= 20
    assert op_types(load(exported("dynamo unoptimized", "ALB", LOOPS))).count("Transpose") == 25


# Gemm, and sizes that blocks do not divide


def test_a_gemm_with_bias_and_50_summed_numbers_is_reached(tmp_path: Path) -> None:
    text = """main (float[batch,50] x) => (float[batch,70] z) {
        y = Gemm <transB = 1> (x, w, b) r = Relu(y) z = Gemm (r, v, c) }"""
    weights = {"w": noise(70, 50), "b": noise(70), "v": noise(70, 70, seed=1), "c": noise(70)}
    every = ("fp16", "int8", "int4-float", "int4-int8", "int4-nbits", "int4-dequantize")
    made = export(save(tmp_path, text, weights, opset=21), *every)
    for name in every:
        one = record(made, name)
        assert one["verification"]["verdict"] == "passed"
        assert one["coverage"]["operations_reached"] == 2
        assert one["coverage"]["full"] is True
        assert float_tensors(model_of(made, name)) == {}
    blocks = [w["form"] for w in record(made, "int4-nbits")["weights"]]
    assert all("blocks of 32" in form and "run as matmul_nbits" in form for form in blocks)


# Weights that no form reaches

LEFT_AND_CONV = """main (float[batch,3,20,20] x, float[64,n] z) => (float[batch,40,18,18] y,
    float[40,n] l, float[n,50] p) {
    y = Conv (x, kernel)
    l = MatMul (left, z)
    t = Transpose <perm = [1, 0]> (z)
    p = MatMul (t, right)
}"""
UNREACHED = {"kernel": noise(40, 3, 3, 3), "left": noise(40, 64), "right": noise(64, 50)}


@pytest.fixture
def unreached(tmp_path: Path) -> Path:
    return save(tmp_path, LEFT_AND_CONV, UNREACHED)


def test_a_missed_weight_is_a_loud_warning_with_its_reason_and_exit_code_0(unreached: Path) -> None:
    result = run(unreached, "--precision", "int8,int4", "-o", unreached.parent / "out")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    warnings = [line for line in lines if line.startswith("WARNING")]
    assert [line.split(":")[0] for line in warnings] == ["WARNING int8", "WARNING int4"]
    assert warnings[0] == (
        "WARNING int8: reaches 1 of 3 operations, 46.8% of the bytes of weights; not reached: "
        "left (10,240 bytes): the left factor of a MatMul; "
        "kernel (4,320 bytes): has 4 dimensions, not 2; used by Conv, which has no form of fewer "
        "bits"
    )
    (row,) = (line for line in lines if line.startswith("int8 "))
    assert "1 of 3" in row and "46.8 %" in row


def test_the_manifest_names_what_was_missed_and_why(unreached: Path) -> None:
    made = export(unreached, "fp16", "int8")
    coverage = record(made, "int8")["coverage"]
    share = 64 * 50 / (64 * 50 + 40 * 64 + 40 * 27)
    assert coverage["full"] is False
    assert coverage["bytes_share"] == pytest.approx(share, abs=1e-6)
    assert {
        left["value"]: (left["nbytes"], left["on_purpose"]) for left in coverage["skipped"]
    } == {
        "left": (4 * 40 * 64, False),
        "kernel": (4 * 40 * 27, False),
    }
    assert record(made, "fp16")["coverage"]["full"] is True  # it has a form for both
    assert record(made, "fp16")["notices"] == []


def test_full_coverage_can_be_required_and_nothing_is_written(unreached: Path) -> None:
    arguments = (unreached, "--require-full-coverage", "-o", unreached.parent / "out")
    line = one_line(run(*arguments, "--precision", "fp16,int8"))
    assert line.startswith("Error: int8 reaches 1 of 3 operations, ")
    assert "left (10,240 bytes): the left factor of a MatMul" in line
    assert line.endswith("nothing was written; --keep NAME leaves a weight on purpose")
    assert names_in(unreached.parent) == ["source.onnx"]
    kept = run(*arguments, "--precision", "int8", "--keep", "left", "--keep", "ker*")
    assert kept.exit_code == 0, kept.output
    assert "WARNING" not in kept.stdout
    assert run(*arguments, "--precision", "fp16", "--force").exit_code == 0


def test_ten_missed_weights_are_named_and_the_others_counted(tmp_path: Path) -> None:
    lines = " ".join(f"x{i + 1} = MatMul(w{i}, x{i})" for i in range(13))
    text = f"main (float[32,n] x0) => (float[32,n] x13) {{ {lines} }}"
    weights = {f"w{i}": noise(32, 32, seed=i, scale=0.2) for i in range(13)}
    made = export(save(tmp_path, text, weights), "int8", layout="unrolled")
    (notice,) = record(made, "int8")["notices"]
    assert notice.count("left factor") == 10
    assert notice.endswith("; and 3 more")
    assert len(record(made, "int8")["coverage"]["skipped"]) == 13


# Weights kept on purpose


def test_a_kept_weight_stays_in_float32_is_no_warning_and_is_named_in_the_coverage(
    tmp_path: Path,
) -> None:
    source = stack_of_layers(tmp_path, [3])
    result = run(source, "--precision", "fp16,int8,int4", "--keep", "he?d", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "WARNING" not in result.stdout
    made = export(source, *THREE, keep=("he?d",), require_full_coverage=True)
    for name in THREE:
        coverage = record(made, name)["coverage"]
        assert coverage["full"] is True
        assert coverage["bytes_share"] == 0.5
        assert coverage["skipped"] == [
            {
                "value": "head",
                "reason": "kept: head matches 'he?d' (asked for)",
                "nbytes": 4 * 48 * 48,
                "on_purpose": True,
            }
        ]
        assert float_tensors(model_of(made, name)) == {"head": 4 * 48 * 48}
        assert record(made, name)["precision"]["keep"] == [{"pattern": "he?d", "why": "asked for"}]


def test_a_pattern_that_matches_no_weight_is_a_warning(tmp_path: Path) -> None:
    source = stack_of_layers(tmp_path, [2])
    made = export(source, "int8", "int8-int4-tables", keep=("head", "*clasifier*"))
    for name in ("int8", "int8-int4-tables"):
        assert record(made, name)["notices"] == [
            f"{name}: '*clasifier*' is to be kept and matches no weight"
        ]
    again = run(source, "--precision", "int8", "--keep", "nothing", "-o", tmp_path / "other")
    assert "WARNING int8: 'nothing' is to be kept and matches no weight" in again.stdout


# Names


def test_names_that_passes_would_give_may_be_taken_already(tmp_path: Path) -> None:
    taken = "w_q8 w_scale w_step w_fp16 w_fp16_expanded w_expanded w_packed w_scales w_int8 "
    taken += "x_q8 x_q8_1 x_q8_2 y_i32 y_f32 y_step y_product w_int4 w_scales_float w_float "
    taken += "middle_of_16 last_axis low_bits_up four_bits last_axes rows_of w_rounded w_scaled"
    names = taken.split()
    lines = " ".join(f"{name} = Add(x, c{number})" for number, name in enumerate(names))
    text = f"""main (float[batch,64] x) => (float[batch,64] z, float[batch,64] last)
        {{ y = MatMul(x, w) {lines} last = Sum({", ".join(names)}) z = MatMul(y, w) }}"""
    constants = {f"c{n}": np.full(1, n, np.float32) for n in range(len(names))}
    weights = {"w": noise(64, 64, scale=0.1), **constants}
    every = ("fp16", "int8", "int8-unsigned", "int4-float", "int4-int8", "int4-nbits")
    source = save(tmp_path, text, weights, opset=21)
    made = export(source, *every, "int4-dequantize", layout="unrolled")
    for name in (*every, "int4-dequantize"):
        assert record(made, name)["verification"]["verdict"] == "passed"
        assert record(made, name)["coverage"]["operations_reached"] == 2
        proto = onnx.load(made.models()[name])
        outputs = [value for node in proto.graph.node for value in node.output]
        assert len(set(outputs)) == len(outputs)
        assert set(names) <= set(outputs)
        assert not {tensor.name for tensor in proto.graph.initializer} & set(outputs)


# Opsets


@pytest.mark.parametrize(
    ("opset", "precision", "message"),
    [
        (
            18,
            "int4-dequantize",
            "int4 behind DequantizeLinear needs opset 21, this graph is in opset 18; ",
        ),
        (
            12,
            "int8",
            "storing weights in fewer bits needs opset 13, this graph is in opset 12; convert it ",
        ),
    ],
)
def test_an_opset_that_is_too_low_is_one_clear_line_and_nothing_is_written(
    tmp_path: Path, opset: int, precision: str, message: str
) -> None:
    text = "main (float[batch,64] x) => (float[batch,64] y) { y = MatMul(x, w) }"
    source = save(tmp_path, text, {"w": noise(64, 64)}, opset=opset)
    line = one_line(run(source, "--precision", precision, "-o", tmp_path / "out"))
    assert line.startswith(f"Error: {message}")
    assert "Pass" not in line
    assert names_in(tmp_path) == ["source.onnx"]
    assert run(source, "-o", tmp_path / "out").exit_code == 0  # fp32 has no such need


# Errors that are too large

OUTLIER = "main (float[batch,64] x) => (float[batch,64] y) { m = Mul(x, mask) y = MatMul(m, w) }"


@pytest.fixture
def outlier(tmp_path: Path) -> Path:
    """A weight whose one large row is multiplied by 0: all that matters rounds to nothing."""
    weight, mask = noise(64, 64, scale=0.01), np.ones(64, np.float32)
    weight[0], mask[0] = 1000, 0
    return save(tmp_path, OUTLIER, {"w": weight, "mask": mask})


def test_a_precision_that_is_too_far_is_refused_by_name_and_nothing_is_written(
    outlier: Path,
) -> None:
    with pytest.raises(VerificationError) as raised:
        export(outlier, "fp16", "int8")
    assert str(raised.value) == (
        "int8 is too far from the model: y has a relative error of 1, more than 0.15; nothing was "
        "written; --keep-failed keeps it for a look, --tolerance int8= sets another limit"
    )
    assert names_in(outlier.parent) == ["source.onnx"]


def test_a_tolerance_lets_it_through_and_stands_in_the_manifest(outlier: Path) -> None:
    made = export(outlier, "int8", tolerances={"int8": 1.01})
    one = record(made, "int8")
    assert made.manifest["verdict"] == one["verification"]["verdict"] == "passed"
    assert one["tolerance"] == one["verification"]["tolerance"] == 1.01
    assert one["precision"]["tolerance"] == 1.01
    assert one["verification"]["relative_error"] == pytest.approx(1, abs=0.01)


def test_a_kept_failure_is_marked_failed_beside_what_passed(outlier: Path) -> None:
    out = outlier.parent / "out"
    result = run(outlier, "--precision", "fp32,fp16,int8", "--keep-failed", "-o", out)
    assert result.exit_code == 1
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert rows["fp16"].endswith("passed") and rows["int8"].endswith("failed")
    assert "passed: against the input file" in rows["worst"]
    assert rows["artifact:"] == f"artifact: {out}, marked as failed"
    made = export(outlier, "fp32", "int8", keep_failed=True)
    assert made.manifest["verdict"] == "failed"
    assert record(made, "fp32")["verification"]["verdict"] == "passed"
    (reason,) = record(made, "int8")["verification"]["reasons"]
    assert reason.startswith("y has a relative error of 1, more than 0.15")


def test_a_float_copy_beside_the_reduced_weight_fails_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = stack_of_layers(tmp_path, [2], size=80)
    from exporter.passes.weights import coverage

    def leave(weight: object, emitter: object) -> None:
        """Remove nothing."""

    monkeypatch.setattr(coverage, "_remove", leave)
    monkeypatch.setattr("exporter.passes.remove_unused.RemoveUnusedPass.rewrite", leave)
    with pytest.raises(PassError, match=r"sharing is lost in int8: .* beside its reduced form"):
        export(source, "int8")


def test_products_in_the_body_of_a_loop_are_reached(tmp_path: Path) -> None:
    made = export(stack_of_layers(tmp_path, [4]), "int8")
    model = model_of(made, "int8")
    assert made.manifest["layout"]["chosen"] == "rolled"
    assert operators(model).count("MatMulInteger") == 2
    assert "MatMul" not in operators(model)
