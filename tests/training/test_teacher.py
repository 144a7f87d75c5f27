from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.errors import CheckpointError
from exporter.models import EncoderConfig, SharedEncoder, save_folder
from exporter.training import fine_tuning
from exporter.training.batches import ordinary_pieces
from exporter.training.fine_tuning import (
    ClassificationObjective,
    FineTuningPlan,
    fine_tune,
    teacher_identity,
)
from exporter.training.judging import judge
from exporter.training.loop import Schedule, train
from exporter.training.teacher import Teacher, load_teacher, save_teacher
from tests.training.tiny import OLD_SPECIAL, bert, sentences, teacher, teacher_folder, tokenizer

SCHEDULE = Schedule(epochs=12, batch_size=16, learning_rate=5e-3, average_decay=0.9, threads=1)
PLAN = FineTuningPlan(max_length=24, word_dropout=0.0, schedule=SCHEDULE)
TEXTS = ["This film is lovely.", "boring", "The plot with a scene is superb."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teacher_folder(tmp_path_factory.mktemp("teacher"))


def encoder(target: Path) -> Path:
    """Write what a published encoder is: no classifier, another architecture's name."""
    source = teacher()
    save_teacher(Teacher(source.model.bert, source.tokenizer), target)
    return target


def test_an_encoder_learns_to_tell_good_from_bad(tmp_path: Path) -> None:
    run = fine_tune(encoder(tmp_path), sentences(100), PLAN)
    assert run.finished
    assert run.result.labels == ("negative", "positive")
    fresh = sentences(40, seed=5)
    logits = judge(run.result, [s.text for s in fresh]).logits
    truth = torch.tensor([s.rating > 0 for s in fresh])
    assert torch.equal(logits[:, 1] > logits[:, 0], truth)


@torch.no_grad()
def test_a_rating_is_a_soft_label() -> None:
    model = bert()
    ids = torch.tensor([[3, 66, 70, 4], [3, 68, 4, 0]])
    mask, ratings = (ids > 0).long(), torch.tensor([2.0, -1.0])
    logits = model(input_ids=ids, attention_mask=mask).logits
    plan = dataclasses.replace(PLAN, sharpness=0.5)
    ordinary = ordinary_pieces(tokenizer())
    loss = ClassificationObjective(model, plan, ordinary, 5)(ids, mask, {"rating": ratings}, 0.0)
    positive = torch.tensor([1 / (1 + math.exp(-1.0)), 1 / (1 + math.exp(0.5))])
    log = logits.log_softmax(1)
    soft = -(positive * log[:, 1] + (1 - positive) * log[:, 0]).mean()
    torch.testing.assert_close(loss, soft)


def test_the_word_embeddings_stay_and_the_rest_moves(tmp_path: Path) -> None:
    plan = dataclasses.replace(PLAN, schedule=dataclasses.replace(SCHEDULE, epochs=1))
    before = bert().bert
    after = fine_tune(encoder(tmp_path), sentences(30), plan).result.model.base_model
    assert torch.equal(
        after.embeddings.word_embeddings.weight, before.embeddings.word_embeddings.weight
    )
    query = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(after.state_dict()[query], before.state_dict()[query])


def test_a_saved_teacher_says_the_same(folder: Path) -> None:
    original, loaded = teacher(), load_teacher(folder)
    a, b = judge(original, TEXTS), judge(loaded, TEXTS)
    torch.testing.assert_close(a.logits, b.logits, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(a.embeddings, b.embeddings, atol=2e-3, rtol=2e-3)
    assert loaded.labels == ("negative", "positive")
    assert loaded.width == 16


@torch.no_grad()
def test_judgements_are_logits_and_mean_embeddings_whatever_the_batch() -> None:
    source = teacher()
    judged = judge(source, TEXTS, batch_size=2)
    for index, text in enumerate(TEXTS):
        ids = torch.tensor([source.tokenizer.encode(text).ids])
        alone = source.model(input_ids=ids, output_hidden_states=True)
        torch.testing.assert_close(judged.logits[index], alone.logits[0], atol=1e-5, rtol=1e-5)
        mean = alone.hidden_states[-1][0].mean(0)
        torch.testing.assert_close(judged.embeddings[index], mean.half(), atol=2e-3, rtol=2e-3)


def test_bf16_judgements_are_close_and_leave_the_teacher_as_it_was() -> None:
    source = teacher()
    exact, quick = judge(source, TEXTS), judge(source, TEXTS, precision="bf16")
    assert not torch.equal(quick.logits, exact.logits)
    torch.testing.assert_close(quick.logits, exact.logits, atol=0.03, rtol=0)
    assert quick.logits.dtype == torch.float32
    assert next(source.model.parameters()).dtype == torch.float32


def test_judgements_are_cached_by_texts_weights_and_tokenizer(tmp_path: Path) -> None:
    source = teacher()
    first = judge(source, TEXTS, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    calls: list[int] = []
    again = judge(source, TEXTS, cache=tmp_path, progress=lambda done, total: calls.append(done))
    assert calls == []
    assert torch.equal(again.logits, first.logits)
    assert torch.equal(again.embeddings, first.embeddings)
    judge(source, TEXTS[:2], cache=tmp_path)
    other = judge(teacher(seed=1), TEXTS, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    source.tokenizer.enable_truncation(4)
    cut = judge(source, TEXTS, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    assert not torch.equal(cut.logits, first.logits)
    assert not torch.equal(other.logits, first.logits)


def test_interrupted_judgements_are_gone_on_with(tmp_path: Path) -> None:
    class KilledError(Exception):
        """Stands for a process that ends between two batches."""

    def kill(done: int, total: int) -> None:
        if done == 3:
            raise KilledError

    source = teacher()
    asked = {"cache": tmp_path, "cache_interval_s": 0.0, "batch_size": 1}
    with pytest.raises(KilledError):
        judge(source, TEXTS, progress=kill, **asked)
    calls: list[int] = []
    resumed = judge(source, TEXTS, progress=lambda done, total: calls.append(done), **asked)
    assert calls[0] == 3
    whole = judge(source, TEXTS, batch_size=1)
    assert torch.equal(resumed.logits, whole.logits)
    assert torch.equal(resumed.embeddings, whole.embeddings)
    (stored,) = tmp_path.iterdir()
    stored.write_bytes(stored.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="is damaged: delete it"):
        judge(source, TEXTS, **asked)


def test_a_teacher_that_knows_no_numbers_is_refused() -> None:
    source = teacher()
    source.model.classifier.bias.data[0] = float("nan")
    with pytest.raises(CheckpointError, match="no finite number"):
        judge(source, TEXTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem_type": "regression"}, r"one of several labels \(problem_type regression"),
        ({"problem_type": "multi_label_classification"}, "problem_type multi_label"),
        ({"id2label": {"0": "only"}}, "1 labels"),
        ({"vocab_size": 30}, "more pieces than the 30 of config.json"),
    ],
)
def test_a_classifier_whose_answers_do_not_fit_is_no_teacher(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = teacher_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    labels = len(config["id2label"])
    for name in ("classifier.weight", "classifier.bias"):
        tensors[name] = tensors[name][:labels].contiguous()
    words = "bert.embeddings.word_embeddings.weight"
    tensors[words] = tensors[words][: config["vocab_size"]].contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        load_teacher(folder)


def test_what_is_no_teacher_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_teacher(tmp_path)
    with pytest.raises(CheckpointError, match="holds no classifier of sequences"):
        load_teacher(encoder(tmp_path / "encoder"))
    bare = teacher_folder(tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json"):
        load_teacher(bare)
    (bare / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is no tokenizer"):
        load_teacher(bare)
    with pytest.raises(CheckpointError, match=r"config\.json is no folder"):
        load_teacher(bare / "config.json")
    damaged = teacher_folder(tmp_path / "damaged")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        load_teacher(damaged)
    config = EncoderConfig(
        vocab_size=9, embedding_size=4, hidden_size=4, intermediate_size=4, num_attention_heads=1
    )
    save_folder(SharedEncoder(config), tmp_path / "reference")
    with pytest.raises(CheckpointError, match="is no Hugging Face folder"):
        load_teacher(tmp_path / "reference")


def test_weights_that_lack_a_tensor_are_refused_and_never_random(tmp_path: Path) -> None:
    path = teacher_folder(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    del tensors["classifier.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"classifier\.weight"):
        load_teacher(tmp_path)


def test_only_words_are_hidden_from_the_teacher_and_by_the_mask(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []

    class Seeing(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            seen.append(input_ids)
            return bert()(input_ids=input_ids, attention_mask=attention_mask)

    plan = dataclasses.replace(PLAN, word_dropout=0.25)
    mask_id = OLD_SPECIAL.index("[MASK]")
    model = ClassificationObjective(Seeing(), plan, ordinary_pieces(tokenizer()), mask_id)
    ids = torch.full((400, 30), 66)
    ids[:, : len(OLD_SPECIAL)] = torch.arange(len(OLD_SPECIAL))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model(ids, torch.ones_like(ids), {"rating": torch.zeros(400)}, 0.0)
    hidden = seen[0] != ids
    assert not hidden[:, : len(OLD_SPECIAL)].any()
    assert set(seen[0][hidden].tolist()) == {mask_id}
    share = float(hidden[:, len(OLD_SPECIAL) :].float().mean())
    assert share == pytest.approx(0.25, abs=0.02)


def test_a_teacher_is_told_by_its_plan_encoder_texts_and_ratings(tmp_path: Path) -> None:
    rated = sentences(9)
    better = [dataclasses.replace(rated[0], rating=2.75), *rated[1:]]
    source, other = encoder(tmp_path / "a"), tmp_path / "b"
    save_teacher(Teacher(bert(seed=1).bert, teacher().tokenizer), other)
    asked = (
        (source, rated, PLAN),
        (other, rated, PLAN),
        (source, better, PLAN),
        (source, rated[::-1], PLAN),
        (source, rated, dataclasses.replace(PLAN, sharpness=1.0)),
    )
    identities = [teacher_identity(*each) for each in asked]
    assert identities[0] == teacher_identity(*asked[0])
    differing = [
        [name for name in first if first[name] != one[name]]
        for first, one in zip([identities[0]] * 4, identities[1:], strict=True)
    ]
    assert differing == [["encoder"], ["sentences"], ["sentences"], ["plan"]]


def test_fine_tuning_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = dataclasses.replace(PLAN, schedule=dataclasses.replace(SCHEDULE, epochs=2))
    rated = sentences(40)
    source, snapshot = encoder(tmp_path / "base"), tmp_path / "snapshot.pt"
    with monkeypatch.context() as patched:
        patched.setattr(fine_tuning, "train", partial(train, time_budget_s=0))
        assert not fine_tune(source, rated, plan, snapshot=snapshot).finished
    resumed = fine_tune(source, rated, plan, snapshot=snapshot).result.model
    whole = fine_tune(source, rated, plan).result.model
    assert all(
        torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True)
    )
