from __future__ import annotations

import dataclasses

import pytest
import torch

from exporter.models import SharedEncoder, SharingScheme
from exporter.training.depths import at_every_depth, logits_at_every_depth
from exporter.training.distill import new_student
from tests.training.tiny import PLAN, sentences, teacher


def student(scheme: str) -> tuple[SharedEncoder, object]:
    plan = dataclasses.replace(PLAN, sharing=SharingScheme.parse(scheme))
    model, tokenizer, *_ = new_student(teacher(), [s.text for s in sentences(50)], plan)
    torch.nn.init.normal_(model.classifier.weight, generator=torch.Generator().manual_seed(0))
    return model.eval(), tokenizer


@pytest.mark.parametrize("scheme", ["all", "none", "attention_only"])
@torch.no_grad()
def test_each_depth_gives_what_an_encoder_of_that_depth_gives(scheme: str) -> None:
    model, _ = student(scheme)
    ids = torch.tensor([[2, 9, 8, 3], [2, 7, 3, 0]])
    mask = (ids > 0).long()
    logits, embeddings = at_every_depth(model, ids, mask)
    assert (tuple(logits.shape), tuple(embeddings.shape)) == ((3, 2, 2), (3, 2, 16))
    torch.testing.assert_close(logits[-1], model(ids, mask))
    for depth in (1, 2):
        model.attention_order, model.ffn_order = (
            order[:depth] for order in (model.attention_order, model.ffn_order)
        )
        torch.testing.assert_close(logits[depth - 1], model(ids, mask))
        torch.testing.assert_close(at_every_depth(model, ids, mask)[0], logits[:depth])
        model, _ = student(scheme)
    assert len(at_every_depth(model, ids, mask, passes=2)[0]) == 2
    assert not torch.allclose(logits[0], logits[2])


def test_rows_come_back_in_their_places() -> None:
    model, tokenizer = student("all")
    texts = ["lovely", "this film with a plot is boring.", "story is superb"]
    together = logits_at_every_depth(model, tokenizer, texts)
    for index, text in enumerate(texts):
        alone = logits_at_every_depth(model, tokenizer, [text])
        torch.testing.assert_close(together[:, index], alone[:, 0], atol=1e-5, rtol=1e-5)
