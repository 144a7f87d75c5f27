from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from exporter.cli.distill_command import distill
from exporter.training.demo import load_demo
from tests.training.tiny import sentences, teacher_folder

SMALL = (
    *("--layers", "2", "--vocab-size", "100", "--embedding-size", "8", "--hidden-size", "16"),
    *("--intermediate-size", "16", "--heads", "2", "--max-length", "16", "--epochs", "1"),
    *("--batch-size", "16", "--threads", "1"),
)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teacher_folder(tmp_path_factory.mktemp("teacher"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    rows = (json.dumps({"text": f"{s.text} {i}"}) for i, s in enumerate(sentences(100)))
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def run(teacher: Path, data: Path, output: Path, *more: str) -> Result:
    paths = ["--teacher", str(teacher), "--data", str(data), "-o", str(output)]
    return CliRunner().invoke(distill, [*paths, *SMALL, *more])


def test_it_writes_a_student_of_the_asked_shape(teacher: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "student"
    result = run(teacher, data, output, "--scheme", "grouped(2)", "--seed", "3")
    assert result.exit_code == 0, result.output
    student, _ = load_demo(output)
    config = student.config
    assert (str(config.sharing), config.num_hidden_layers, config.hidden_size) == (
        *("grouped(2)", 2, 16),
    )
    assert "Same label as the teacher on 2 texts set aside, after layer 1: " in result.stdout
    assert result.stdout.splitlines()[-1] == f"Written: {output / 'model.pt'}"
    assert result.stderr.splitlines() == ["asking the teacher …", "distilling …"]
    first = json.loads((output / "log.jsonl").read_text().splitlines()[0])
    assert first["plan"]["schedule"]["seed"] == 3
    assert first["plan"]["schedule"]["epochs"] == 1


def test_a_time_budget_stops_it_and_the_same_command_goes_on(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "student"
    result = run(teacher, data, output, "--time-budget", "1e-9")
    assert result.exit_code == 0, result.output
    assert "Stopped after 1 of 7 steps; the same command goes on from there" in result.stdout
    result = run(teacher, data, output)
    assert result.exit_code == 0, result.output
    assert "Stopped" not in result.stdout
    whole = tmp_path / "whole"
    run(teacher, data, whole)
    assert (output / "model.pt").read_bytes() == (whole / "model.pt").read_bytes()


def test_what_is_wrong_is_one_clear_line(teacher: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "student"
    cases = [
        (run(tmp_path / "nothing", data, output), "nothing"),
        (run(teacher, tmp_path / "none.txt", output), "cannot read"),
        (run(teacher, data, output, "--heads", "3"), "no such student: hidden_size 16 is not"),
        (run(teacher, data, output, "--text-column", "body"), "no text under 'body'"),
    ]
    for result, message in cases:
        assert result.exit_code == 1
        lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1
        assert message in lines[0]
        assert "a fault of albert-export" not in lines[0]
    assert not (output / "model.pt").exists()
    result = run(teacher, data, output, "--scheme", "some")
    assert result.exit_code == 2
    assert "unknown sharing scheme 'some'" in result.stderr


def test_its_help_imports_no_torch() -> None:
    code = (
        "import sys; from exporter.cli.distill_command import distill;"
        "distill(['--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--time-budget" in done.stdout
