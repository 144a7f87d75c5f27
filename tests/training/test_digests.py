from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import BertConfig

from exporter.training.digests import digest_examples, digest_model, digest_texts
from exporter.training.teacher import Teacher
from tests.training.tiny import teacher

SEQUENCES = [[2, 7, 3], [2, 3]]
TARGETS = {"logits": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "half": torch.ones(2).half()}


def test_texts_are_told_apart_by_order_and_by_where_one_ends() -> None:
    assert digest_texts(["ab", "c"]) == digest_texts(["ab", "c"])
    assert len({digest_texts(t) for t in (["ab", "c"], ["c", "ab"], ["a", "bc"], ["abc"])}) == 4


def _cut(source: Teacher) -> None:
    source.tokenizer.enable_truncation(5)


def _weight(source: Teacher) -> None:
    source.model.classifier.bias.data[0] += 1e-6


def _activation(source: Teacher) -> None:
    source.model.config.hidden_act = "relu"


def _origin(source: Teacher) -> None:
    source.model.config._name_or_path = "/elsewhere"


def _entry(source: Teacher) -> None:
    source.model.config.dtype = torch.float16
    source.model.config.architectures = ["BertForSequenceClassification"]


@pytest.mark.parametrize(
    ("change", "same"),
    [(_cut, False), (_weight, False), (_activation, False), (_origin, True), (_entry, True)],
)
def test_a_model_is_its_tokenizer_configuration_and_weights(
    change: Callable[[Teacher], None], same: bool
) -> None:
    first, second = teacher(), teacher()
    change(second)
    digests = [digest_model(each.model, each.tokenizer) for each in (first, second)]
    assert (digests[0] == digests[1]) is same


def test_defaults_that_another_version_adds_or_drops_make_no_other_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, real = teacher(), BertConfig.to_dict
    before = digest_model(source.model, source.tokenizer)

    def to_dict(self: BertConfig) -> dict[str, Any]:
        entries = {**real(self), "of_a_later_version": True}
        return {name: value for name, value in entries.items() if name != "use_cache"}

    monkeypatch.setattr(BertConfig, "to_dict", to_dict)
    assert digest_model(source.model, source.tokenizer) == before
    monkeypatch.undo()
    source.model.config.use_cache = False  # what is chosen counts
    assert digest_model(source.model, source.tokenizer) != before


@pytest.mark.parametrize(
    "change",
    [
        {"sequences": [[2, 7, 3], [2, 4]]},
        {"sequences": [[2, 7], [3, 2, 3]]},
        {"targets": {**TARGETS, "logits": TARGETS["logits"].T}},
        {"targets": {**TARGETS, "half": torch.ones(2).bfloat16()}},
        {"targets": {"scores": TARGETS["logits"], "half": TARGETS["half"]}},
    ],
)
def test_examples_are_their_ids_and_targets(change: dict[str, Any]) -> None:
    asked = {"sequences": SEQUENCES, "targets": TARGETS}
    assert digest_examples(**asked) == digest_examples(**asked)
    assert digest_examples(**{**asked, **change}) != digest_examples(**asked)
