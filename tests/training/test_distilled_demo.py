from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.errors import CheckpointError
from exporter.training import distilled_demo
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


@pytest.mark.usefixtures("asked")
def test_the_teacher_is_left_in_its_folder(tmp_path: Path) -> None:
    made = demo_teacher(tmp_path, tmp_path / "work", DEMO.teacher)
    names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(p.name for p in (tmp_path / "work/teacher").iterdir()) == names
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["teacher"]
    assert made.labels == ("negative", "positive")
