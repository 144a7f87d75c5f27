"""Precisions on the command line: what can be asked for, and what is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.cli.export_command import export
from exporter.cli.main import main
from exporter.precision import MAIN_PRECISIONS, PRECISIONS, TARGETS, find_precision
from tests.pipeline.sources import save, stack_of_layers
from tests.samples import names_in


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def error(result: Result, code: int = 1) -> str:
    """The last line on standard error of a run that fails with ``code``."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return stack_of_layers(tmp_path, [3])


def rows(result: Result) -> dict[str, str]:
    """Lines of the summary by their first word."""
    assert result.exit_code == 0, result.output
    return {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}


def test_the_help_names_every_precision_and_target_and_the_tolerances_there_are() -> None:
    text = " ".join(CliRunner().invoke(export, ["--help"]).output.split())
    for precision in PRECISIONS:
        assert re.search(rf"\b{precision.name}\b", text.replace("- ", "-")), precision.name
    assert f"'all' is {','.join(MAIN_PRECISIONS)}" in text
    assert f"[{'|'.join(TARGETS)}]" in text
    for name in ("fp16", "int8", "int4"):
        assert f"{name} {find_precision(name).tolerance:g}" in text


def test_the_table_has_the_figures_of_the_manifest(source: Path) -> None:
    out = source.parent / "out"
    shown = rows(run(source, "--precision", "all", "--with-baseline", "-o", out))
    manifest = Artifact.load(out, check_hashes=True).manifest
    records = {record["variant"]: record for record in manifest["models"]}
    assert shown["precision"].split() == [
        *("precision", "file", "of", "fp32", "unshared", "operations", "bytes", "error"),
        *("limit", "top-1", "verdict"),
    ]
    for name in ("fp16", "int8", "int4"):
        one = records[name]
        checked = one["verification"]
        assert shown[name].split() == [
            *(name, f"{one['file_bytes']:,}", "bytes"),
            f"{one['file_bytes'] / records['fp32']['file_bytes']:.3f}",
            *(f"{records[f'baseline-{name}']['file_bytes']:,}", "bytes"),
            *("2", "of", "2", "100", "%"),
            *(f"{100 * checked['relative_error']:.3g}", "%"),
            *(f"{100 * find_precision(name).tolerance:.3g}", "%"),
            *(f"{100 * checked['top1_agreement']:.3g}", "%"),
            "passed",
        ]
    assert shown["file"].rstrip().endswith("onnx/model.onnx")
    assert not [line for line in shown if line.startswith("baseline")]


def test_a_float_graph_that_is_not_in_the_artifact_is_said_not_to_be(source: Path) -> None:
    out = source.parent / "out"
    result = run(source, "--precision", "int8", "-o", out)
    shown = rows(result)
    assert shown["file"].rstrip().endswith("in float32; not in the artifact")
    assert "passed: against the input file" in shown["worst"]
    assert "fp32" not in shown
    assert names_in(out / "onnx") == ["model_quantized.onnx"]


def test_without_an_option_fp32_alone_is_written_and_no_table_shown(source: Path) -> None:
    out = source.parent / "out"
    assert "precision" not in rows(run(source, "-o", out))
    assert names_in(out / "onnx") == ["model.onnx"]


def test_names_may_come_with_commas_or_options_of_their_own(source: Path) -> None:
    out = source.parent / "out"
    result = run(source, "--precision", "int8, fp16", "--precision", "int8", "-o", out, "--json")
    assert result.exit_code == 0, result.output
    assert [record["variant"] for record in json.loads(result.stdout)["models"]] == ["int8", "fp16"]


def test_an_unknown_name_is_one_line_before_anything_is_read(tmp_path: Path) -> None:
    result = run(tmp_path / "missing.onnx", "--precision", "int8,int9")
    assert error(result).startswith("Error: unknown precision 'int9'; choose from all, int4, fp32,")
    assert len(result.stderr.splitlines()) == 1
    assert "no precision is asked for" in error(run("x.onnx", "--precision", ""))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("int8", "'int8' is not NAME=NUMBER, such as int4=0.2."),
        ("=0.2", "'=0.2' is not NAME=NUMBER"),
        (" = 0.2", "' = 0.2' is not NAME=NUMBER"),
        ("int8=", "is not a valid float"),
        ("int8=much", "is not a valid float"),
        ("int8=0", "0.0 is not in the range x>0"),
        ("int8=-1", "is not in the range"),
        ("int8=inf", "inf is not a finite number"),
        ("int8=nan", "nan is not a finite number"),
    ],
)
def test_a_tolerance_that_is_no_number_above_0_is_refused(value: str, message: str) -> None:
    result = run("model.onnx", "--precision", "int8", "--tolerance", value)
    assert message in error(result, code=2)


@pytest.mark.parametrize(
    ("precision", "tolerance", "message"),
    [
        ("int8", "int4=0.2", "--tolerance is given for int4, which is not exported; exported are:"),
        ("fp32,int8", "fp32=0.2", "fp32 is held to an absolute difference: use --atol"),
    ],
)
def test_a_tolerance_of_what_is_not_exported_is_refused(
    precision: str, tolerance: str, message: str
) -> None:
    result = run("model.onnx", "--precision", precision, "--tolerance", tolerance)
    assert error(result).startswith(f"Error: {message}")


@pytest.mark.parametrize("given", ["int8=0.25", " int8 = 0.25 "])
def test_a_tolerance_given_is_the_limit_shown(source: Path, given: str) -> None:
    arguments = (source, "--precision", "int8,int4", "--tolerance", given)
    shown = rows(run(*arguments, "-o", source.parent / "out"))
    assert " 25 % " in shown["int8"]
    assert " 50 % " in shown["int4"]
    message = error(run(*arguments, "--tolerance", "int4=1e-6", "-o", source.parent / "other"))
    assert message.startswith("Error: int4 is too far from the model: y has a relative error of ")
    assert message.endswith("--tolerance int4= sets another limit")
    assert not (source.parent / "other").exists()


def test_an_error_that_is_not_finite_is_said_to_be(tmp_path: Path) -> None:
    text = """main (float[batch,64] x) => (float[batch,64] y)
        { m = Mul(x, mask) a = MatMul(m, w) y = Div(one, a) }"""
    weight, mask = np.full((64, 64), 1e-3, np.float32), np.ones(64, np.float32)
    weight[0], mask[0] = 1000, 0  # beside the row that counts for nothing all others round to 0
    source = save(tmp_path, text, {"w": weight, "mask": mask, "one": np.ones(1, np.float32)})
    result = run(source, "--precision", "int8", "--keep-failed", "-o", tmp_path / "out")
    assert result.exit_code == 1
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("int8 "))
    assert "not finite" in row and row.endswith("failed")
    assert "passed: against the input file" in result.stdout
