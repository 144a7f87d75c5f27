from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.cli.main import main
from tests.evaluation.exits import calibrated, leaving_artifact
from tests.inspection.helpers import matrix
from tests.passes.helpers import build


@pytest.fixture
def wasteful(tmp_path: Path) -> Path:
    """A file with a table of 40,000 bytes in three copies, one of them transposed."""
    table = matrix(100, 100)
    model = build(
        "main (int64[2] i) => (float[2,100] y) {"
        " e = Gather(a, i) v = Identity(b) m = MatMul(e, v) y = MatMul(m, c) }",
        {"a": table, "b": table, "c": np.ascontiguousarray(table.T)},
    )
    path = tmp_path / "slim.onnx"
    ir.save(model, path)
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def test_the_first_lines_say_what_is_wasted_and_how_to_repair_it(wasteful: Path) -> None:
    result = run(wasteful)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "0.12 MB stored, 40,000 bytes unique: 80,000 bytes are copies."
    assert lines[1] == f"Repair: albert-export {wasteful} --dedupe -o slim-onnx"
    assert len(lines) < 25
    size = f"{wasteful.stat().st_size:,}"
    assert [line.split()[1] for line in lines[3:6]] == ["40,000", "120,000", size]
    assert [line.split()[0] for line in lines[6:8]] == ["brotli", "gzip"]
    (group,) = [line for line in lines if "transposed" in line]
    assert group.split()[:5] == ["80,000", "3", "float", "[100,", "100]"]
    assert "reaches 2 of 3 weight operations, 66.7 % of weight bytes" in result.stdout
    assert "missed: 1 behind Identity" in result.stdout


def test_a_file_without_waste_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ir.save(build("main (float[2] x) => (float[2] y) { y = Neg(x) }", {"a": matrix(8, 8)}), path)
    result = run(path, "--no-transfer")
    assert result.stdout.startswith("256 bytes stored, each tensor once.\n")
    assert "Repair" not in result.stdout
    assert "brotli" not in result.stdout


def test_long_lists_are_cut_to_a_screen_and_whole_in_json(tmp_path: Path) -> None:
    weights = {f"{side}{n}": matrix(n + 9, n + 9) for n in range(14) for side in "ab"}
    path = tmp_path / "many.onnx"
    ir.save(build("main (float[2] x) => (float[2] y) { y = Neg(x) }", weights), path)
    result = run(path, "--no-transfer")
    rest = 4 * (9**2 + 10**2 + 11**2 + 12**2)
    assert f"and 4 more groups ({rest:,} bytes); --json lists all" in result.stdout
    (model,) = json.loads(run(path, "--no-transfer", "--json").stdout)["models"]
    assert len(model["copies"]) == 14


def test_copies_of_a_few_bytes_are_mentioned_and_not_listed(tmp_path: Path) -> None:
    weights = {"a": matrix(8, 8), "one": np.arange(2), "other": np.arange(2)}
    path = tmp_path / "m.onnx"
    ir.save(build("main (float[2] x) => (float[2] y) { y = Neg(x) }", weights), path)
    lines = run(path, "--no-transfer").stdout.splitlines()
    assert lines[0] == "288 bytes stored, each tensor once, but for 16 bytes."
    assert not any("wasted" in line for line in lines)
    (model,) = json.loads(run(path, "--no-transfer", "--json").stdout)["models"]
    assert (model["wasted_bytes"], model["unique_bytes"], len(model["copies"])) == (16, 272, 1)


def test_json_is_the_library_s_record_and_the_gate(wasteful: Path) -> None:
    record = json.loads(run(wasteful, "--json", "--no-transfer").stdout)
    assert record["gate"] == {"status": "not run", "failures": []}
    assert record["models"][0]["wasted_bytes"] == 80_000
    assert record["models"][0]["transfer"] is None


def test_copies_fail_the_shared_gate_and_still_print_the_report(wasteful: Path) -> None:
    result = run(wasteful, "--require-shared", "--json", "--no-transfer")
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert record["gate"]["status"] == "failed"
    assert "80,000 of 120,000 stored bytes are copies" in result.stderr
    assert result.stderr.splitlines()[-1] == f"Error: {record['gate']['failures'][0]}"


def test_the_size_gate_takes_units(wasteful: Path) -> None:
    assert run(wasteful, "--no-transfer", "--max-bytes", "1MB").exit_code == 0
    result = run(wasteful, "--no-transfer", "--max-bytes", "100_000")
    assert result.exit_code == 1
    assert "more than the 100,000 allowed" in result.stderr
    result = run(wasteful, "--max-bytes", "twelve")
    assert result.exit_code == 2
    assert "'twelve' is no size; write 12000000" in result.stderr


def test_an_artifact_shows_its_variants_side_by_side(artifact: Artifact) -> None:
    result = run(artifact.folder, "--no-transfer", "--require-shared")
    assert result.exit_code == 0, result.output
    assert "its files have the hashes of its manifest" in result.stdout
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert rows["fp32"].endswith("passed")
    assert rows["baseline"].rstrip().endswith("not run")
    (loop,) = artifact.manifest["layout"]["loops"]
    assert f"{loop['loop']}: {loop['iterations']} × " in rows["Rolled:"]


def test_an_artifact_that_leaves_early_says_by_what_rule_and_setting(tmp_path: Path) -> None:
    artifact = leaving_artifact(tmp_path / "exit-onnx")
    assert "Leaves early: confidence; not calibrated" in run(artifact.folder).stdout.splitlines()
    artifact = calibrated(artifact, 0.9)
    lines = run(artifact.folder).stdout.splitlines()
    assert "Leaves early: confidence; calibrated on d.csv: fp32 0.9, int8 0.9" in lines
    fp32, int8 = artifact.manifest["models"]
    chosen = {**int8["calibration"], "data": "e.csv", "value": 1.0}
    artifact.with_manifest({**artifact.manifest, "models": [fp32, {**int8, "calibration": chosen}]})
    result = run(artifact.folder)
    assert (
        "Leaves early: confidence; calibrated on d.csv: fp32 0.9; calibrated on e.csv: int8 never"
    ) in result.stdout.splitlines()
    told = json.loads(run(artifact.folder, "--json").stdout)["artifact"]["early_exit"]
    assert told["calibrated"]["int8"] == {"data": "e.csv", "value": None}


def test_an_artifact_that_does_not_leave_early_says_nothing_of_it(artifact: Artifact) -> None:
    assert "Leaves early" not in run(artifact.folder, "--no-transfer").stdout


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of three precisions with baselines: one weight kept, one not reached."""
    folder = tmp_path_factory.mktemp("reduced")
    text = """main (float[batch,64] x, float[64,n] v) => (float[batch,64] y, float[40,n] l)
        { h = MatMul(x, w) y = MatMul(h, head) l = MatMul(left, v) }"""
    weights = {"w": matrix(64, 64), "head": matrix(64, 64, 1), "left": matrix(40, 64, 2)}
    ir.save(build(text, weights), folder / "model.onnx")
    arguments = ["--precision", "fp32,fp16,int8", "--keep", "head", "--with-baseline"]
    out = folder / "out"
    result = CliRunner().invoke(main, [str(folder / "model.onnx"), *arguments, "-o", str(out)])
    assert result.exit_code == 0, result.output
    return out


def test_precisions_are_shown_with_their_coverage_and_what_they_left(reduced: Path) -> None:
    lines = run(reduced, "--no-transfer").stdout.splitlines()
    header = next(line for line in lines if line.startswith("model"))
    assert "fewer bits" in header and "quantized" not in header
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert "0 of 3, 0.0 %" in rows["fp32"]
    assert "2 of 3, 61.9 %" in rows["fp16"]
    assert "1 of 3, 38.1 %" in rows["int8"]
    assert "1 of 3, 38.1 %" in rows["baseline-int8"]
    start = lines.index("Weights left as they are:")
    assert lines[start + 1 : start + 3] == [
        "  head (16,384 bytes) in fp16, int8: kept: head matches 'head' (asked for)",
        "  left (10,240 bytes) in int8: the left factor of a MatMul",
    ]
    record = json.loads(run(reduced, "--no-transfer", "--json").stdout)
    int8 = record["models"][2]
    assert int8["coverage"]["bytes_share"] == pytest.approx(0.380952)
    assert int8["errors_by_depth"] == []


def test_a_table_is_as_wide_as_its_names_need_where_no_terminal_is(reduced: Path) -> None:
    lines = run(reduced, "--no-transfer").stdout.splitlines()
    row = next(line for line in lines if line.startswith("baseline-int8 "))
    assert len(row) > 80 and row.endswith("not run")


def test_one_file_of_float16_says_that_it_reads_fewer_bits(reduced: Path) -> None:
    result = run(reduced / "onnx" / "model_fp16.onnx", "--no-transfer")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("Quantizer:")]
    assert line.startswith("Quantizer: 2 of 3 weight operations read fewer bits, 44.8 % of weight")


def test_what_cannot_be_read_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    result = run(tmp_path / "none.onnx")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith(
        "none.onnx cannot be read: No such file or directory"
    )
    assert result.stdout == ""
    assert run().exit_code == 2


def test_inspecting_imports_neither_torch_nor_onnxruntime(wasteful: Path) -> None:
    script = (
        "import sys; from exporter.cli.main import main;"
        f"main(['inspect', {str(wasteful)!r}], standalone_mode=False);"
        "heavy = {'torch', 'onnxruntime', 'transformers', 'onnxscript'} & set(sys.modules);"
        "passes = [name for name in sys.modules if name.startswith('exporter.passes')];"
        "sys.exit(f'{heavy} {passes}' if heavy or passes else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "80,000 bytes are copies" in done.stdout
