"""``bench --data``: real texts, and models that leave early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.benchmark import read_results
from exporter.cli.main import main
from exporter.records import Measurement
from tests.evaluation.exits import LAYERS, calibrated, leaving_artifact

SHORT = ("--sessions", "1", "--min-runs", "4", "--min-seconds", "0", "--no-transfer")


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return calibrated(leaving_artifact(tmp_path / "exit-onnx"), 0.9)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.csv"
    rows = ["good good good good", "good", "bad film", "film bad good"]
    path.write_text("\n".join(["text", *rows]))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, (*arguments, *SHORT))])


def measurements(path: Path) -> dict[tuple[str, str], Measurement]:
    records = [record for record in read_results(path) if isinstance(record, Measurement)]
    return {(record.case.runtime, record.case.variant): record for record in records}


def test_node_and_the_cpu_leave_at_the_same_layers(
    artifact: Artifact, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    arguments = ("--runtime", "cpu,node", "--precision", "int8", "--out", out)
    result = run(artifact.folder, "--data", data, *arguments)
    assert result.exit_code == 0, result.output
    found = measurements(out)
    assert [*found] == [(place, v) for place in ("cpu", "node") for v in ("int8", "int8-exit")]
    cpu, node = (found[place, "int8-exit"].layers for place in ("cpu", "node"))
    assert cpu is not None and cpu == node
    assert (cpu.setting, cpu.value, cpu.of) == ("exit_threshold", 0.9, LAYERS)
    assert 1 <= cpu.mean < LAYERS
    for record in found.values():
        assert record.case.texts is not None
        assert (record.case.texts.name, record.case.texts.rows) == ("d.csv", 4)
        assert (record.case.batch, record.case.sequence) == (1, 4)  # with an [END] in each
        assert len(record.samples_ms) == 4
    assert found["cpu", "int8"].layers is None


def test_the_table_has_a_column_for_what_leaving_early_does(artifact: Artifact, data: Path) -> None:
    result = run(artifact.folder, "--data", data, "--precision", "fp32")
    assert result.exit_code == 0, result.output
    assert "1 thread, 4 texts of d.csv, of 4 tokens on average" in result.stdout
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "mean" in lines["model"] and "time / all layers" in lines["model"]
    assert "time / fp32" not in lines["model"]
    assert lines["fp32"].split()[-1] == "all"
    assert lines["fp32-exit"].count("×") == 1
    assert lines["fp32-exit"].rstrip().endswith(f"of {LAYERS}")


def test_resuming_measures_again_only_what_another_calibration_changed(
    artifact: Artifact, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    arguments = (artifact.folder, "--data", data, "--out", out, "--precision", "fp32")
    assert run(*arguments).exit_code == 0
    again = run(*arguments, "--resume", "--json")
    assert len(read_results(out)) == 2
    document = json.loads(again.stdout)
    assert document["summary"][1]["ratios"].keys() == {"fp32"}
    assert document["summary"][1]["mean_ms"] > 0
    calibrated(artifact, 0.5)
    assert run(*arguments, "--resume").exit_code == 0
    values = [record.layers.value for record in read_results(out) if record.layers]
    assert values == [0.9, 0.5]
    assert len(read_results(out)) == 4  # fp32 too: a ratio needs both in one run


def test_a_report_shows_it(artifact: Artifact, data: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    result = run(artifact.folder, "--data", data, "--precision", "int8", "--report", page)
    assert result.exit_code == 0, result.output
    text = page.read_text().replace("\xa0", " ")
    assert "4 texts of d.csv #" in text
    assert "layers, mean and p90" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seq", "8"), "texts have their own lengths: leave --seq out, or --data"),
        (("--batch", "2"), "texts are run one at a time: with --data, --batch is 1"),
        (("--text-column", "body"), "no 'body' among text; name it with --text-column"),
    ],
)
def test_what_does_not_go_with_texts_is_refused(
    artifact: Artifact, data: Path, options: tuple[str, ...], message: str
) -> None:
    result = run(artifact.folder, "--data", data, *options)
    assert result.exit_code == 1
    assert message in result.stderr
