from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.errors import CheckpointError
from exporter.training import distilled_demo, folders
from exporter.training.data import OTHERS, Corpus, Labelled, Rated
from exporter.training.distilled_demo import DemoPlan, demo_teacher, distill_demo
from exporter.training.fine_tuning import FineTuningPlan
from exporter.training.loop import Schedule
from exporter.training.teacher import Teacher, save_teacher
from tests.training.tiny import PLAN, sentences, teacher

DEMO = DemoPlan(
    teacher=FineTuningPlan(
        max_length=24, schedule=Schedule(epochs=1, batch_size=16, threads=1, learning_rate=5e-3)
    ),
    student=PLAN,
    review_sentences=2,
)
HELD_OUT = (Rated("The held film is rare.", 2.0),)
REVIEWS = ("What a film!", "A scene with rareness.", "Not asked for.")
FOREIGN = {"yelp": (Labelled("A scene with rareness.", True),)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, list[Any]]:
    """Put small data in place of the archives; remember what was asked for and learned."""
    asked: dict[str, list[Any]] = {"others": [], "fine_tune": [], "distill": [], "judge": []}
    source = teacher()
    encoder = tmp_path / "encoder"
    save_teacher(Teacher(source.model.base_model, source.tokenizer), encoder)

    def load_corpus(data_dir: Path, others: Sequence[str] = OTHERS) -> Corpus:
        asked["others"].append(tuple(others))
        more = sentences(30, seed=2) if "nytEditorialSnippets" in others else []
        return Corpus((*sentences(40), *more), (Rated("Fine", 1.0),), HELD_OUT, FOREIGN)

    def read_review_sentences(
        data_dir: Path, corpus: Corpus, count: int, progress: Callable[[int, int], None]
    ) -> list[str]:
        progress(1, 1)
        return list(REVIEWS)[:count]

    monkeypatch.setattr(distilled_demo, "load_corpus", load_corpus)
    monkeypatch.setattr(distilled_demo, "encoder_folder", lambda data_dir: encoder)
    monkeypatch.setattr(distilled_demo, "read_review_sentences", read_review_sentences)
    for name in ("fine_tune", "distill", "judge"):
        real = getattr(distilled_demo, name)

        def spy(
            first: Any, texts: Any, *rest: Any, _n: str = name, _r: Any = real, **o: Any
        ) -> Any:
            asked[_n].append(texts)
            return _r(first, texts, *rest, **o)

        monkeypatch.setattr(distilled_demo, name, spy)
    return asked


def test_the_teacher_learns_from_reviews_and_the_student_from_all_but_the_tests(
    asked: dict[str, list[Any]], tmp_path: Path
) -> None:
    told: list[str] = []
    run = distill_demo(tmp_path, tmp_path / "work", DEMO, lambda what, *_: told.append(what))
    assert run.finished
    assert asked["others"] == [("amazonReviewSnippets", "tweets"), OTHERS]
    assert len(asked["fine_tune"][0]) == 40
    (texts,) = asked["distill"]
    assert {s.text for s in sentences(30, seed=2)} <= set(texts)
    assert texts[-1] == "What a film!"
    assert not {"Fine", HELD_OUT[0].text, *REVIEWS[1:]} & set(texts)
    assert list(dict.fromkeys(told)) == [
        "fine-tuning the teacher", "reading reviews", "asking the teacher", "distilling"
    ]  # fmt: skip


def test_a_second_call_goes_on_from_the_folder(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    work = tmp_path / "work"
    first, _ = distill_demo(tmp_path, work, DEMO).result
    again, _ = distill_demo(tmp_path, work, DEMO).result
    assert len(asked["fine_tune"]) == 1  # the teacher is there
    pairs = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    other = dataclasses.replace(DEMO, student=dataclasses.replace(PLAN, temperature=3.0))
    with pytest.raises(CheckpointError, match=r"plan\.temperature"):
        distill_demo(tmp_path, work, other)
    assert len(asked["judge"]) == 2  # the teacher was not asked for nothing


def _with(**changes: Any) -> DemoPlan:
    """Change both schedules, as the script does."""
    return dataclasses.replace(
        DEMO,
        teacher=dataclasses.replace(
            DEMO.teacher, schedule=dataclasses.replace(DEMO.teacher.schedule, **changes)
        ),
        student=dataclasses.replace(PLAN, schedule=dataclasses.replace(PLAN.schedule, **changes)),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"seed": 5}, r"schedule\.seed 0, not 5"), ({"precision": "bf16"}, r'"fp32", not "bf16"')],
)
def test_a_finished_teacher_of_another_plan_teaches_no_student(
    asked: dict[str, list[Any]], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    work = tmp_path / "work"
    demo_teacher(tmp_path, work, DEMO.teacher)
    before = {path: path.read_bytes() for path in (work / "teacher").iterdir()}
    with pytest.raises(CheckpointError, match=rf"work/teacher holds a run with .*{message}"):
        distill_demo(tmp_path, work, _with(**changes))
    assert asked["judge"] == asked["distill"] == []
    assert {path: path.read_bytes() for path in (work / "teacher").iterdir()} == before


def test_a_finished_teacher_of_other_sentences_is_refused_and_of_the_same_taken(
    asked: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    demo_teacher(tmp_path, work, DEMO.teacher)
    demo_teacher(tmp_path, work, DEMO.teacher)
    assert len(asked["fine_tune"]) == 1
    rated = (*sentences(39), Rated("This film is rare.", 1.0))
    corpus = Corpus(rated, (), HELD_OUT, FOREIGN)
    monkeypatch.setattr(distilled_demo, "load_corpus", lambda *_, **__: corpus)
    with pytest.raises(CheckpointError, match="work/teacher holds a run with sentences "):
        demo_teacher(tmp_path, work, DEMO.teacher)


class _KilledError(Exception):
    pass


@pytest.fixture
def killed_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[object, str], None]:
    """Make a teacher, but stop where ``name`` of ``owner`` is called next."""

    def make(owner: object, name: str) -> None:
        def kill(*_: object, **__: object) -> None:
            raise _KilledError

        with monkeypatch.context() as patched, pytest.raises(_KilledError):
            patched.setattr(owner, name, kill)
            demo_teacher(tmp_path, tmp_path / "work", DEMO.teacher)

    return make


def test_a_teacher_that_was_not_written_whole_is_written_again(
    asked: dict[str, list[Any]], tmp_path: Path, killed_before: Callable[[object, str], None]
) -> None:
    killed_before(distilled_demo, "write_identity")
    folder = tmp_path / "work/teacher"
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(b"half")
    demo_teacher(tmp_path, tmp_path / "work", DEMO.teacher)
    assert len(asked["fine_tune"]) == 2
    assert (folder / "model.safetensors").read_bytes() == weights


def test_a_teacher_that_says_not_what_it_is_made_of_is_not_overwritten(
    asked: dict[str, list[Any]], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    demo_teacher(tmp_path, work, DEMO.teacher)
    (work / "teacher/identity.json").unlink()
    before = {path: path.read_bytes() for path in (work / "teacher").iterdir()}
    with pytest.raises(CheckpointError, match=r"work/teacher holds a teacher without identity"):
        distill_demo(tmp_path, work, DEMO)
    assert len(asked["fine_tune"]) == 1
    assert {path: path.read_bytes() for path in (work / "teacher").iterdir()} == before


def test_what_killed_calls_left_is_taken_away(
    asked: dict[str, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_before: Callable[[object, str], None],
) -> None:
    work = tmp_path / "work"
    with monkeypatch.context() as patched:
        patched.setattr(folders, "_held", lambda folder: nullcontext())  # which unlinks, too
        killed_before(Path, "unlink")
    assert (work / "teacher/identity.json").is_file()
    (work / "teacher/.model.safetensors-0123abcd.partial").touch()
    for name in ("student-snapshot.pt", "teacher-snapshot.pt", "judgements-1.npz"):
        (work / f".{name}-0123abcd.partial").touch()
    demo_teacher(tmp_path, work, DEMO.teacher)
    assert len(asked["fine_tune"]) == 1
    assert [path.name for path in work.iterdir()] == ["teacher"]
    assert len(list((work / "teacher").iterdir())) == 5


TOGETHER = """
import sys
from pathlib import Path
from exporter.training import distilled_demo
from exporter.training.data import Corpus, Rated
from exporter.training.loop import is_main_process
from tests.training.test_distilled_demo import DEMO
from tests.training.tiny import sentences

def tell(what, *_):
    sys.stdout.write(f"{is_main_process()} {what}\\n")  # a line at once: the other writes, too

encoder, work = map(Path, sys.argv[1:])
corpus = Corpus(tuple(sentences(40)), (Rated("Fine", 1.0),), (), {})
distilled_demo.load_corpus = lambda *_, **__: corpus
distilled_demo.encoder_folder = lambda _: encoder
distilled_demo.read_review_sentences = lambda *_: ["What a film!"]
run = distilled_demo.distill_demo(work, work, DEMO, tell)
tell(f"finished {run.finished}")
"""


@pytest.mark.usefixtures("asked")
def test_two_processes_make_one_teacher_and_one_student(tmp_path: Path) -> None:
    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*launch, str(script), str(tmp_path / "encoder"), str(tmp_path / "work")],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "ACCELERATE_USE_CPU": "true",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
    )
    assert done.returncode == 0, done.stderr
    told = ("asking the teacher", "distilling", "fine-tuning the teacher", "finished True")
    lines = sorted(set(done.stdout.splitlines()))
    assert lines == ["False finished True", *(f"True {what}" for what in told)]
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "work").iterdir()) == [
        "judgements", "student", "teacher"
    ]  # fmt: skip


@pytest.mark.usefixtures("asked")
def test_the_teacher_is_left_in_its_folder(tmp_path: Path) -> None:
    made = demo_teacher(tmp_path, tmp_path / "work", DEMO.teacher)
    names = ["config.json", "identity.json", "model.safetensors", "tokenizer.json"]
    names.append("tokenizer_config.json")
    assert sorted(p.name for p in (tmp_path / "work/teacher").iterdir()) == names
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["teacher"]
    assert made.labels == ("negative", "positive")
