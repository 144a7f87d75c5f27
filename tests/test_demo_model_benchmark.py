"""What the demo model's benchmark counts, writes and refuses; nothing is exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from click.testing import CliRunner

from benchmarks.demo_model import run
from benchmarks.demo_model.table import BEGIN, END, tables
from exporter.inputs import InputSpec
from exporter.passes.make_depth_elastic import MakeDepthElasticPass
from tests.evaluation.exits import LAYERS, doubling
from tests.evaluation.helpers import IDS, MASK, make_artifact

FILES = ("held-out.jsonl", "foreign.jsonl")


def results() -> dict[str, Any]:
    """Figures of 100 and of 300 sentences, half of them positive."""

    def file(who: str, variant: str, data: str, correct: int) -> dict[str, Any]:
        rows = 100 if data == FILES[0] else 300
        figures = {"correct": correct, "rows": rows, "majority": 0.5, "file_bytes": 2_000_000}
        return {"who": who, "variant": variant, "data": data, **figures}

    def pairs(*only: tuple[int, int]) -> list[dict[str, Any]]:
        return [
            {"data": data, "rows": rows, "only_first": first, "only_second": second}
            for (data, rows), (first, second) in zip(
                zip(FILES, (100, 300), strict=True), only, strict=True
            )
        ]

    return {
        "files": [
            file("teacher", "fp32", FILES[0], 90),
            file("teacher", "fp32", FILES[1], 270),
            file("student", "int8", FILES[0], 80),
            file("student", "int8", FILES[1], 276),
        ],
        "teacher_fp32_and_student_int8": pairs((13, 3), (4, 10)),
        "depths": [
            {"variant": "fp32", "data": FILES[0], "rows": 100, "correct": [79, 80]},
            {"variant": "fp32", "data": FILES[1], "rows": 300, "correct": [275, 270]},
        ],
        "fp32_all_passes_and_one": pairs((2, 1), (1, 6)),
    }


def test_what_the_student_keeps_is_told_with_its_interval_and_above_chance() -> None:
    text = tables(results())
    assert "| difference | -10.0 points (-17.7 to -1.9) | +2.0 points (-0.6 to +4.6) |" in text
    assert "| kept of the accuracy | 88.9% | 102.2% |" in text
    assert "| kept of what is above the majority baseline | 75.0% | 105.0% |" in text


def test_one_pass_and_all_are_compared_over_all_sentences() -> None:
    assert tables(results()).endswith(
        "Of all 400 sentences the fp32 file labels 354 right after one pass, and 350 after all 2: "
        "a difference of +1.0 points (-0.7 to +2.7)."
    )


def test_right_rows_are_those_of_the_asked_number_of_passes(tmp_path: Path) -> None:
    model = doubling(film=3.0)  # a pass doubles what is counted and adds 3 bad words a "film"
    MakeDepthElasticPass()(model)
    specs = (IDS, MASK, InputSpec("depth", "int64", (), optional=True))
    artifact = make_artifact(tmp_path / "made", {"int8": ir.to_proto(model)}, specs=specs)
    texts = [("good", "positive"), ("good good film", "negative"), ("bad", "positive")]
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"text": t, "label": x}) + "\n" for t, x in texts))
    assert [run.right(artifact, "int8", data, depth).tolist() for depth in (1, LAYERS, None)] == [
        [True, False, False],
        [True, True, False],
        [True, True, False],
    ]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were measured in; results go to a folder of the test."""
    folders: list[Path] = []

    def measure(teacher: Path, model: Path, work: Path, data_dir: Path) -> dict[str, Any]:
        assert work.is_dir()
        folders.append(work)
        return results()

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "HERE", tmp_path)
    return folders


def test_figures_go_into_the_card_and_beside_the_script_and_no_files_stay(
    made: list[Path], tmp_path: Path
) -> None:
    card = tmp_path / "README.md"
    card.write_text(f"{BEGIN}{END}")
    done = CliRunner().invoke(run.main, ["--model", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert card.read_text() == f"{BEGIN}\n\n{tables(results())}\n\n{END}"
    assert json.loads((tmp_path / "results.json").read_text()) == results()
    assert len(made) == 1 and not made[0].exists()


def test_a_folder_that_was_asked_for_stays(made: list[Path], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"{BEGIN}{END}")
    work = tmp_path / "work"
    work.mkdir()
    CliRunner().invoke(run.main, ["--model", str(tmp_path), "--work-dir", str(work)])
    assert made == [work] and work.is_dir()


def test_a_card_without_the_marks_is_refused_before_anything_is_measured(
    made: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("# Card\n")
    done = CliRunner().invoke(run.main, ["--model", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: {tmp_path}/README.md does not mark where figures go")
    assert len(done.output.splitlines()) == 1
    assert made == [] and not (tmp_path / "results.json").exists()
