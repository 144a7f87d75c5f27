from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.cli.calibrate_command import calibrate
from exporter.cli.evaluate_command import evaluate
from tests.evaluation.exits import leaving_artifact

DATA = "text,label\ngood good film,negative\ngood,positive\nbad,negative\ngood good film,positive\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.csv"
    path.write_text(DATA)
    return path


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return leaving_artifact(tmp_path / "exit-onnx")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(calibrate, list(map(str, arguments)))


def test_the_table_has_the_curve_and_marks_the_choice(artifact: Artifact, data: Path) -> None:
    result = run(artifact.folder, "--data", data, "--values", "0,0.9", "--variant", "fp32")
    assert result.exit_code == 0, result.output
    *lines, alike, note = [line.split() for line in result.stdout.splitlines()]
    assert lines[1][-4:] == ["mean", "ms", "÷", "all"]
    assert " ".join(alike) == (
        "note: every text leaves after pass 1: with this data a model of that depth would do"
    )
    assert lines[0] == ["fp32:", "at", "most", "0.5", "points", "lost"]
    assert lines[1][0] == "exit_threshold"
    columns = [(row[0], row[1], row[2], row[3]) for row in lines[2:]]
    assert columns == [
        ("0", "75.0%", "+0.00", "1.00"),
        ("0.9", "75.0%", "+0.00", "1.50"),
        ("never", "75.0%", "+0.00", "3.00"),
    ]
    assert [row[-1] == "chosen" for row in lines[2:]] == [True, False, False]
    assert " ".join(note) == (
        "note: 4 examples cannot tell: the loss of 0.00 points is known to within -46.2 to +46.2 "
        "only (95 %)"
    )


@pytest.mark.parametrize(("max_loss", "noted"), [("46", True), ("47", False)])
def test_a_note_says_when_the_examples_are_too_few(
    artifact: Artifact, data: Path, max_loss: str, noted: bool
) -> None:
    arguments = ("--values", "0", "--variant", "fp32", "--max-loss", max_loss)
    result = run(artifact.folder, "--data", data, *arguments)
    assert ("examples cannot tell" in result.stdout) is noted


def test_all_layers_lose_nothing_however_few_the_examples(artifact: Artifact, data: Path) -> None:
    result = run(artifact.folder, "--data", data, "--values", "1", "--variant", "fp32")
    assert "examples cannot tell" not in result.stdout


def test_a_note_is_printed_once_and_names_models_where_it_is_not_of_all(
    artifact: Artifact, tmp_path: Path
) -> None:
    data = tmp_path / "alike.csv"
    data.write_text("text,label\ngood,positive\nbad,negative\ngood good good film,positive\n")
    both = run(artifact.folder, "--data", data, "--values", "0.6", "--max-loss", "100")
    notes = [line for line in both.stdout.splitlines() if line.startswith("note")]
    assert notes == [
        "note: every text leaves after pass 1: with this data a model of that depth would do"
    ]
    other = run(artifact.folder, "--data", data, "--values", "0.9", "--max-loss", "100")
    assert "every text leaves" not in other.stdout


def test_a_loss_below_0_is_called_a_gain(artifact: Artifact, tmp_path: Path) -> None:
    data = tmp_path / "gain.csv"
    data.write_text("text,label\ngood good film,positive\nbad,negative\n")
    result = run(artifact.folder, "--data", data, "--values", "0", "--variant", "int8")
    assert "the gain of 50.00 points is known to within -" in result.stdout
    assert "loss of -" not in result.stdout


def test_without_a_terminal_there_is_a_line_for_each_model(artifact: Artifact, data: Path) -> None:
    result = run(artifact.folder, "--data", data, "--values", "0")
    assert result.stderr.splitlines() == [
        "calibrating fp32 (1 of 2) …",
        "calibrating int8 (2 of 2) …",
    ]


def test_json_is_what_the_manifest_holds(artifact: Artifact, data: Path) -> None:
    result = run(artifact.folder, "--data", data, "--values", "0", "--json", "--max-loss", 3)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    models = Artifact.load(artifact.folder).manifest["models"]
    assert printed == {model["variant"]: model["calibration"] for model in models}
    assert printed["int8"]["max_loss"] == 3


def test_evaluate_then_tells_the_layers_used(artifact: Artifact, data: Path) -> None:
    run(artifact.folder, "--data", data, "--values", "0.9", "--variant", "fp32")
    result = CliRunner().invoke(evaluate, [str(artifact.folder), "--data", str(data)])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert rows["fp32"][-1] == "all"
    assert rows["fp32-exit"][-2:] == ["1.50,", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-loss", "-1"], "-1"),
        (["--values", "high"], "'high' is not a valid float"),
        (["--values", "0.5,nan"], "exit_threshold is a number from 0 to 1, not nan"),
        (["--variant", "int4"], "has no model 'int4'"),
        (["--limit", "0"], "0 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_refused(
    artifact: Artifact, data: Path, arguments: list[str], message: str
) -> None:
    result = run(artifact.folder, "--data", data, *arguments)
    assert result.exit_code != 0
    assert message in result.output
