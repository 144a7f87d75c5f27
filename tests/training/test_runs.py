from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.checkpoint import load_checkpoint
from exporter.errors import ArtifactError, CheckpointError
from exporter.models import SharingScheme
from exporter.training import runs
from exporter.training.distill import NewStudent
from exporter.training.judging import AskingStoppedError, judge
from exporter.training.loop import DivergedError
from exporter.training.runs import run_distillation
from exporter.training.sources import DataError
from exporter.training.teacher import load_teacher, save_teacher
from tests.training.tiny import PLAN, sentences, teacher_folder
from tests.training.tiny import teacher as tiny_teacher

TEXTS = [f"{s.text} {index}" for index, s in enumerate(sentences(120))]
STUDENT = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
FILES = sorted([*STUDENT, "log.jsonl"])


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teacher_folder(tmp_path_factory.mktemp("teacher"))


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_student_is_written_that_loads_and_a_log_beside_it(teacher: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int, str]] = []
    result = run_distillation(
        teacher, TEXTS, PLAN, tmp_path, progress=lambda *step: told.append(step)
    )
    assert (result.step, result.steps, result.texts, result.aside) == (16, 16, 117, 3)
    assert len(result.agreement) == 3
    assert files(tmp_path) == FILES
    student = load_checkpoint(tmp_path)
    assert student.config["num_hidden_layers"] == 3
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(vocabulary) == student.config["vocab_size"] == 70
    first, *steps, last = log(tmp_path)
    assert (first["step"], first["texts"], first["aside"]) == (0, 117, 3)
    assert first["plan"]["schedule"]["seed"] == 0
    assert first["plan"]["sharing"] == {"kind": "all", "groups": None}
    assert [(row["step"], row["epoch"]) for row in steps] == [(16, 2)]
    measured = {"agreement": list(result.agreement), "most_frequent": result.most_frequent}
    assert last == {"step": 16, "steps": 16, **measured}
    assert result.most_frequent in (pytest.approx(2 / 3), 1.0)  # of three, two labels
    assert told[0][:3] == ("asking the teacher", 64, 117)
    assert told[-1][:3] == ("distilling", 16, 16)


def test_an_interrupted_run_goes_on_to_the_same_weights(teacher: Path, tmp_path: Path) -> None:
    stopped = run_distillation(teacher, TEXTS, PLAN, tmp_path / "a", time_budget_s=0)
    assert (stopped.step, stopped.steps) == (1, 16)
    kept = [name for name in files(tmp_path / "a") if not name.startswith("judgements-")]
    assert kept == sorted([*FILES, "snapshot.pt"])
    load_checkpoint(tmp_path / "a")  # the student so far can be used
    assert run_distillation(teacher, TEXTS, PLAN, tmp_path / "a").step == 16
    run_distillation(teacher, TEXTS, PLAN, tmp_path / "b")
    for name in STUDENT:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert files(tmp_path / "a") == FILES
    assert [row["step"] for row in log(tmp_path / "a")] == [0, 1, 1, 16, 16]


def test_what_killed_writes_left_is_taken_away(teacher: Path, tmp_path: Path) -> None:
    run_distillation(teacher, TEXTS, PLAN, tmp_path, time_budget_s=0)
    (tmp_path / ".snapshot.pt-0123abcd.partial").write_bytes(b"half a snapshot")
    (tmp_path / ".holiday.mp4.partial").write_bytes(b"of another program")
    whole = (tmp_path / "log.jsonl").read_text()
    (tmp_path / "log.jsonl").write_text(whole + '{"step": 7, "ep')  # as a full disk leaves it
    run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert files(tmp_path) == [".holiday.mp4.partial", *FILES]
    assert [row["step"] for row in log(tmp_path)] == [0, 1, 1, 16, 16]


@pytest.mark.parametrize(
    ("count", "aside"), [(20, 1), (101, 3), (50_000, 1000), (50_999, 1000), (1_000_001, 1000)]
)
def test_one_text_in_fifty_is_set_aside_and_at_most_a_thousand(count: int, aside: int) -> None:
    texts = [str(index) for index in range(count)]
    learned, rest = runs._divided(texts)
    assert len(rest) == aside
    assert sorted([*learned, *rest], key=int) == texts


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


def test_a_finished_student_is_not_overwritten(
    teacher: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_distillation(teacher, TEXTS, PLAN, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = tmp_path_factory.mktemp("other")
    save_teacher(tiny_teacher(seed=1), other)
    for asked, texts, plan in (
        (other, TEXTS, PLAN),
        (teacher, [*TEXTS[:-1], "another text"], PLAN),
        (teacher, TEXTS, dataclasses.replace(PLAN, temperature=4.0)),
    ):
        with pytest.raises(CheckpointError, match=r"holds a finished student .* another folder"):
            run_distillation(asked, texts, plan, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_finished_student_that_was_damaged_is_not_called_finished(
    teacher: Path, tmp_path: Path
) -> None:
    run_distillation(teacher, TEXTS, PLAN, tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="model"):
        run_distillation(teacher, TEXTS, PLAN, tmp_path)


def test_a_finished_run_given_again_says_what_it_did_and_does_nothing(
    teacher: Path, tmp_path: Path
) -> None:
    run_distillation(teacher, TEXTS, PLAN, tmp_path, time_budget_s=0)
    done = run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert not done.already_finished
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    again = run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert again == dataclasses.replace(done, already_finished=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(CheckpointError, match="holds a finished student"):
        run_distillation(teacher, TEXTS, PLAN, tmp_path)


def test_a_wish_to_stop_keeps_the_answers_or_the_student_so_far(
    teacher: Path, tmp_path: Path
) -> None:
    with pytest.raises(AskingStoppedError, match="teacher's answers to 64 of 117 texts"):
        run_distillation(teacher, TEXTS, PLAN, tmp_path, stop=lambda: True)
    (kept,) = files(tmp_path)
    assert kept.startswith("judgements-")
    with pytest.raises(CheckpointError, match="holds a distillation that is not finished"):
        load_checkpoint(tmp_path)
    told: list[tuple[str, int, int, str]] = []
    stopped = run_distillation(
        teacher,
        TEXTS,
        PLAN,
        tmp_path,
        progress=lambda *step: told.append(step),
        stop=lambda: told[-1][:2] == ("distilling", 3),
    )
    assert told[0][:3] == ("asking the teacher", 117, 117)  # the first 64 were kept
    assert (stopped.step, stopped.steps) == (3, 16)
    assert load_checkpoint(tmp_path).notices == [
        f"{tmp_path.name}: distillation stopped after 3 of 16 steps; the same "
        "'albert-export distill' command goes on from there"
    ]
    assert run_distillation(teacher, TEXTS, PLAN, tmp_path).step == 16
    assert load_checkpoint(tmp_path).notices == []


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "model.pt"])
def test_another_model_is_not_overwritten(teacher: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("of another model")
    with pytest.raises(CheckpointError, match=f"another model \\({name}\\)"):
        run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert files(tmp_path) == [name]


def test_other_settings_texts_and_teachers_do_not_go_on_with_a_run_nor_ask(
    teacher: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_distillation(teacher, TEXTS, PLAN, tmp_path, time_budget_s=0)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other, cut = (tmp_path_factory.mktemp(name) for name in ("other", "cut"))
    save_teacher(tiny_teacher(seed=1), other)
    teacher_folder(cut)
    tokenizer = json.loads((cut / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (cut / "tokenizer.json").write_text(json.dumps(tokenizer))
    told: list[object] = []
    for asked, texts, plan, message in (
        (
            teacher,
            TEXTS,
            dataclasses.replace(PLAN, temperature=4.0),
            r"plan\.temperature 2\.0, not",
        ),
        (teacher, [*TEXTS, "more"], PLAN, "a run with question "),
        (other, TEXTS, PLAN, "a run with question "),
        (cut, TEXTS, PLAN, "a run with question "),
    ):
        with pytest.raises(CheckpointError, match=message):
            run_distillation(asked, texts, plan, tmp_path, progress=lambda *s: told.append(s))
    assert told == []
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_another_command_did_in_the_meantime_is_not_overwritten(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runs.new_student

    def slow(*args: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(runs, "new_student", real)
            run_distillation(teacher, TEXTS, dataclasses.replace(PLAN, temperature=4.0), tmp_path)
        return real(*args)

    monkeypatch.setattr(runs, "new_student", slow)
    with pytest.raises(CheckpointError, match="holds a finished student"):
        run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert log(tmp_path)[0]["plan"]["temperature"] == 4.0
    assert files(tmp_path) == FILES


def test_what_the_same_command_did_in_the_meantime_is_taken(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, first = runs.new_student, []

    def slow(*args: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(runs, "new_student", real)
            first.append(run_distillation(teacher, TEXTS, PLAN, tmp_path))
        return real(*args)

    monkeypatch.setattr(runs, "new_student", slow)
    second = run_distillation(teacher, TEXTS, PLAN, tmp_path)
    assert first == [dataclasses.replace(second, already_finished=False)]
    assert second.already_finished


def test_a_run_tells_once_what_its_student_begins_with(teacher: Path, tmp_path: Path) -> None:
    told: list[NewStudent] = []
    for budget in (0, math.inf):
        run_distillation(teacher, TEXTS, PLAN, tmp_path, time_budget_s=budget, started=told.append)
    (student,) = told
    assert 0.5 < student.taken_over < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, "no such student: hidden_size 16 is not"),
        ({"layers": 2, "sharing": SharingScheme("grouped", 3)}, "3 groups need at least as many"),
        ({"max_length": 100}, "100 positions; this BERT has gelu and 32"),
        ({"vocab_size": 20}, "20 pieces have no room"),
    ],
)
def test_an_impossible_student_is_refused_before_the_teacher_is_asked(
    teacher: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    told: list[object] = []
    with pytest.raises(CheckpointError, match=message):
        run_distillation(
            teacher,
            TEXTS,
            dataclasses.replace(PLAN, **change),
            tmp_path / "student",
            progress=lambda *step: told.append(step),
        )
    assert told == []
    assert not (tmp_path / "student").exists()


def test_a_learning_rate_that_is_too_high_gives_no_student(teacher: Path, tmp_path: Path) -> None:
    schedule = dataclasses.replace(PLAN.schedule, learning_rate=1e38)
    with pytest.raises(DivergedError, match=r"step \d+ of 16: .* below 1e\+38"):
        run_distillation(teacher, TEXTS, dataclasses.replace(PLAN, schedule=schedule), tmp_path)
    assert not set(STUDENT) & set(files(tmp_path))


def test_a_place_that_cannot_be_written_is_told_at_once(teacher: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: list[object] = []
    with pytest.raises(ArtifactError, match=r"cannot write to .*student: Not a directory"):
        run_distillation(
            teacher,
            TEXTS,
            PLAN,
            tmp_path / "file/student",
            progress=lambda *step: told.append(step),
        )
    assert told == []


def test_a_handful_of_texts_is_refused(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="19 texts are too few to learn from: give at least 20"):
        run_distillation(teacher, TEXTS[:19], PLAN, tmp_path / "student")
    assert not (tmp_path / "student").exists()
