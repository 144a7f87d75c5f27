from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.cli.evaluate_command import evaluate
from exporter.records import Evaluation, parse_record
from tests.benchmark.fakes import full_disk
from tests.evaluation.helpers import make_artifact, word_counter

DATA = "text;class\nfilm good;Positive\nbad;negative\nfilm good;1\nfilm;0\ngood;1\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "some data.csv"
    path.write_text(DATA)
    return path


@pytest.fixture
def made(tmp_path: Path) -> Artifact:
    models = {"fp32": word_counter(), "int4-dequantize": word_counter(film=2.0)}
    return make_artifact(tmp_path / "made", models)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(evaluate, list(map(str, arguments)))


def records(text: str) -> list[Evaluation]:
    found = [parse_record(line) for line in text.splitlines()]
    assert all(isinstance(record, Evaluation) for record in found)
    return [record for record in found if isinstance(record, Evaluation)]


def test_the_table_has_a_row_per_model_and_says_what_was_counted(
    made: Artifact, data: Path
) -> None:
    result = run(made.folder, "--data", data, "--label-column", "class")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    rows = [" ".join(line.split()) for line in lines[2:4]]
    assert rows == [
        f"fp32 {_size(made, 0)} bytes 100.0% 56.6% to 100.0%",
        f"int4-dequantize {_size(made, 1)} bytes 60.0% 23.1% to 88.2% "
        "-40.00 -80.4 to +23.3 60.0% 2 0",
    ]
    assert lines[4] == (
        "5 examples of some data.csv: 2 negative, 3 positive; "
        "always the most frequent label: 60.0%; batch 1"
    )
    assert len(lines) == 5


def _size(made: Artifact, index: int) -> int:
    return int(made.manifest["models"][index]["file_bytes"])


def test_json_holds_records_and_what_follows_from_them(made: Artifact, data: Path) -> None:
    result = run(made.folder, "--data", data, "--label-column", "class", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(r["variant"], r["correct"]) for r in document["records"]] == [
        ("fp32", 5),
        ("int4-dequantize", 3),
    ]
    assert document["labels"] == {"negative": 2, "positive": 3}
    assert document["notices"] == []
    assert document["summary"][0] == {
        "variant": "fp32",
        "accuracy": 1.0,
        "difference": None,
        "difference_95": None,
        "only_reference_right": None,
        "only_this_right": None,
    }
    second = document["summary"][1]
    assert (second["accuracy"], second["difference"]) == (0.6, -0.4)
    assert second["difference_95"] == pytest.approx([-0.804, 0.233], abs=5e-4)
    assert (second["only_reference_right"], second["only_this_right"]) == (2, 0)


def test_records_are_added_to_the_results_file(made: Artifact, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    asked = (made.folder, "--data", data, "--label-column", "class", "--out", out)
    assert run(*asked).exit_code == 0
    assert run(*asked, "--variant", "fp32").exit_code == 0
    found = records(out.read_text())
    assert [(record.variant, record.correct) for record in found] == [
        ("fp32", 5),
        ("int4-dequantize", 3),
        ("fp32", 5),
    ]


def test_records_that_cannot_be_written_are_shown_all_the_same(
    made: Artifact, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    asked = (made.folder, "--data", data, "--label-column", "class")
    with full_disk(100):
        result = run(*asked, "--out", out)
    assert (result.exit_code, result.stdout) == (1, run(*asked).stdout)
    assert f"Error: cannot write a record to {out}: File too large" in result.stderr
    assert not out.exists()


def test_a_record_holds_the_command_without_folders_of_this_machine(
    made: Artifact, data: Path
) -> None:
    options = ("--label-column", "class", "--limit", "4", "--variant", "fp32,int4-dequantize")
    result = run(made.folder, "--data", data, *options, "--json")
    assert json.loads(result.stdout)["records"][1]["command"] == (
        "albert-export evaluate made --data 'some data.csv' --label-column class "
        "--limit 4 --variant fp32,int4-dequantize"
    )


def test_notes_stand_below_the_table(tmp_path: Path, data: Path) -> None:
    short = make_artifact(tmp_path / "s", {"fp32": word_counter()}, limits={"sequence": 2})
    result = run(short.folder, "--data", data, "--label-column", "class")
    assert result.stdout.splitlines()[-1] == "note: 2 of 5 texts were cut to 2 tokens"


def test_what_cannot_be_evaluated_is_one_line_and_nothing_is_written(
    made: Artifact, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    (made.folder / "other").mkdir()
    for arguments, message in (
        ((tmp_path, "--data", data), "is no artifact: it holds no albert-export.json"),
        ((made.folder, "--data", tmp_path / "none.csv"), "cannot read"),
        ((made.folder, "--data", data), "name it with --label-column"),
        (
            (made.folder, "--data", data, "--label-column", "class", "--variant", "fp33"),
            "has no model 'fp33'; it has: fp32, int4-dequantize",
        ),
    ):
        result = run(*arguments, "--out", out)
        assert result.exit_code == 1
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
    assert not out.exists()


def test_a_model_that_was_changed_since_its_export_is_refused(made: Artifact, data: Path) -> None:
    path = made.folder / "fp32.onnx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    result = run(made.folder, "--data", data, "--label-column", "class")
    assert result.exit_code == 1
    assert "is not the file its manifest describes" in result.stderr


def test_evaluating_needs_no_torch(made: Artifact, data: Path) -> None:
    program = (
        "import sys\n"
        "from exporter.cli.evaluate_command import evaluate\n"
        "print('before:', *(m for m in ('onnxruntime', 'tokenizers') if m in sys.modules))\n"
        f"evaluate({[str(made.folder), '--data', str(data), '--label-column', 'class']!r},"
        " standalone_mode=False)\n"
        "print('loaded:', *(m for m in ('torch', 'transformers') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == "before:"
    assert done.stdout.splitlines()[-1] == "loaded:"
    assert "5 examples of some data.csv" in done.stdout


def test_a_bar_shows_only_what_takes_over_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from exporter.cli.console import progress_bar

    started: list[float] = []
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("rich.progress.Progress.start", lambda self: started.append(clock[0]))
    with progress_bar() as show:
        for second in (0.5, 1.9, 2.1, 2.5):
            clock[0] = second
            show("fp32", 10, 1)
    assert started == [2.1, 2.5]
