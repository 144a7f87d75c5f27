from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.errors import CheckpointError
from exporter.training import runs
from exporter.training.demo import load_demo
from exporter.training.runs import run_distillation
from exporter.training.sources import DataError
from exporter.training.teacher import judge, load_teacher
from tests.training.tiny import PLAN, sentences, teacher_folder

TEXTS = [f"{s.text} {index}" for index, s in enumerate(sentences(120))]
FILES = ["log.jsonl", "model.pt", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teacher_folder(tmp_path_factory.mktemp("teacher"))


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("judgements-"))


def test_a_student_is_written_that_loads_and_a_log_beside_it(teacher: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int, str]] = []
    result = run_distillation(
        teacher, TEXTS, PLAN, tmp_path, progress=lambda *step: told.append(step)
    )
    assert (result.step, result.steps, result.texts, result.aside) == (16, 16, 117, 3)
    assert len(result.agreement) == 3
    assert visible(tmp_path) == FILES
    student, tokenizer = load_demo(tmp_path)
    assert student.config.num_hidden_layers == 3
    assert tokenizer.get_vocab_size() == student.config.vocab_size == 70
    first, *steps, last = log(tmp_path)
    assert first["texts"] == 117
    assert first["plan"]["schedule"]["seed"] == 0
    assert first["plan"]["sharing"] == {"kind": "all", "groups": None}
    assert [row["step"] for row in steps] == [16]
    assert last == {"step": 16, "steps": 16, "agreement": list(result.agreement)}
    assert told[0][:3] == ("asking the teacher", 64, 117)
    assert told[-1][:3] == ("distilling", 16, 16)


def test_an_interrupted_run_goes_on_to_the_same_weights(teacher: Path, tmp_path: Path) -> None:
    stopped = run_distillation(teacher, TEXTS, PLAN, tmp_path / "a", time_budget_s=0)
    assert (stopped.step, stopped.steps) == (1, 16)
    assert visible(tmp_path / "a") == sorted([*FILES, "snapshot.pt"])
    load_demo(tmp_path / "a")  # the student so far can be used
    assert run_distillation(teacher, TEXTS, PLAN, tmp_path / "a").step == 16
    run_distillation(teacher, TEXTS, PLAN, tmp_path / "b")
    assert (tmp_path / "a/model.pt").read_bytes() == (tmp_path / "b/model.pt").read_bytes()
    assert visible(tmp_path / "a") == FILES


def test_texts_set_aside_are_not_learned_from(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    real = runs.distill

    def spy(teacher: Any, texts: list[str], *rest: Any, **options: Any) -> Any:
        seen.append(texts)
        return real(teacher, texts, *rest, **options)

    monkeypatch.setattr(runs, "distill", spy)
    run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert set(TEXTS) - set(seen[0]) == {TEXTS[0], TEXTS[50], TEXTS[100]}


def test_agreement_is_the_share_of_equal_labels(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = TEXTS * 10  # 24 of them are set aside
    logits = torch.zeros(3, 24, 2)
    logits[0, :, 0] = logits[1, :, 1] = logits[2, :12, 0] = logits[2, 12:, 1] = 1
    monkeypatch.setattr(runs, "logits_at_every_depth", lambda *_: logits)
    expected = judge(load_teacher(teacher), texts[::50]).logits.argmax(1).float()
    result = run_distillation(teacher, texts, PLAN, tmp_path, time_budget_s=0)
    positive = float(expected.mean())
    mixed = float(torch.cat([1 - expected[:12], expected[12:]]).mean())
    assert result.agreement == pytest.approx((1 - positive, positive, mixed))


def test_a_finished_student_is_not_overwritten(teacher: Path, tmp_path: Path) -> None:
    run_distillation(teacher, TEXTS, PLAN, tmp_path)
    before = (tmp_path / "model.pt").read_bytes()
    with pytest.raises(CheckpointError, match="holds a finished student: choose another folder"):
        run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert (tmp_path / "model.pt").read_bytes() == before


def test_other_settings_do_not_go_on_with_a_run(teacher: Path, tmp_path: Path) -> None:
    run_distillation(teacher, TEXTS, PLAN, tmp_path, time_budget_s=0)
    with pytest.raises(CheckpointError, match=r"plan\.temperature 2\.0, not 4\.0"):
        run_distillation(teacher, TEXTS, dataclasses.replace(PLAN, temperature=4.0), tmp_path)
    with pytest.raises(CheckpointError, match="holds a run with te"):
        run_distillation(teacher, [*TEXTS, "more"], PLAN, tmp_path)


def test_a_handful_of_texts_is_refused(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="19 texts are too few"):
        run_distillation(teacher, TEXTS[:19], PLAN, tmp_path / "student")
    assert not (tmp_path / "student").exists()
