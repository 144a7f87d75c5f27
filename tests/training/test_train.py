from __future__ import annotations

import dataclasses
import random

import pytest
import torch

from exporter.training.data import Corpus, Labelled, Rated
from exporter.training.evaluate import accuracy, positive_probability
from exporter.training.train import (
    Progress,
    TrainingPlan,
    hide_tokens,
    soft_targets,
    train_demo_model,
)

PLAN = TrainingPlan(
    vocab_size=120,
    embedding_size=16,
    hidden_size=32,
    intermediate_size=32,
    heads=2,
    depth=3,
    max_length=32,
    epochs=3,
    batch_size=16,
    learning_rate=5e-3,
    dropout=0.0,
    average_decay=0.9,
    threads=1,
)


def _sentences(count: int, seed: int) -> tuple[Rated, ...]:
    """Sentences whose rating follows from one word, and nothing else."""
    rng = random.Random(seed)
    nouns = ("film", "plot", "actor", "story", "scene")
    words = {"lovely": 3.0, "superb": 3.5, "dreadful": -3.0, "boring": -2.5}
    chosen = [(rng.choice(nouns), rng.choice(nouns), rng.choice(list(words))) for _ in range(count)]
    return tuple(Rated(f"This {a} with a {b} is {w}.", words[w]) for a, b, w in chosen)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus(_sentences(400, 0), _sentences(40, 1), (), {})


def test_a_small_model_learns_which_words_are_good(corpus: Corpus) -> None:
    steps: list[Progress] = []
    model, tokenizer = train_demo_model(corpus, PLAN, steps.append)
    sentences = [Labelled(s.text, s.rating > 0) for s in _sentences(60, 2)]
    assert accuracy(model, tokenizer, sentences).accuracy == 1.0

    assert not model.training
    assert model.config.labels == ("negative", "positive")
    assert (str(model.config.sharing), model.attention_order) == ("all", [0, 0, 0])
    assert steps[-1].step == steps[-1].steps == 3 * 25
    assert [s.epoch for s in steps if s.development is not None] == [1, 2, 3]
    assert steps[-1].development == 1.0


def test_the_same_plan_gives_the_same_bits_and_leaves_no_trace(corpus: Corpus) -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    plan = dataclasses.replace(PLAN, epochs=1, dropout=0.2, threads=1 if threads > 1 else 2)
    corpus = dataclasses.replace(corpus, training=corpus.training[:64])
    first, _ = train_demo_model(corpus, plan)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    torch.rand(3)  # what was drawn before must not matter
    second, _ = train_demo_model(corpus, plan)
    other, _ = train_demo_model(corpus, dataclasses.replace(plan, seed=1))
    names = list(first.state_dict())
    assert all(torch.equal(first.state_dict()[n], second.state_dict()[n]) for n in names)
    assert not torch.equal(first.state_dict()[names[0]], other.state_dict()[names[0]])


def test_training_does_not_look_at_what_it_is_measured_on(corpus: Corpus) -> None:
    plan = dataclasses.replace(PLAN, epochs=1)
    foreign = {"yelp": (Labelled("This place is dreadful.", True),)}
    measured = dataclasses.replace(corpus, held_out=_sentences(30, 5), foreign=foreign)
    alone, tokenizer = train_demo_model(corpus, plan)
    beside, _ = train_demo_model(measured, plan)
    texts = [s.text for s in corpus.development]
    assert torch.equal(
        positive_probability(alone, tokenizer, texts),
        positive_probability(beside, tokenizer, texts),
    )


def test_ratings_become_probabilities_and_neutral_is_undecided() -> None:
    targets = soft_targets(torch.tensor([0.0, 2.0, -2.0]), sharpness=1.0)
    expected = torch.tensor([[0.5, 0.5], [0.1192, 0.8808], [0.8808, 0.1192]])
    torch.testing.assert_close(targets, expected, atol=1e-4, rtol=0)


def test_hidden_tokens_are_ordinary_ones_and_about_the_asked_share() -> None:
    ids = torch.full((200, 50), 9)
    ids[:, 0], ids[:, -1] = 2, 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hidden = hide_tokens(ids, 0.25)
    assert torch.equal(hidden[:, 0], ids[:, 0])
    assert torch.equal(hidden[:, -1], ids[:, -1])
    assert set(hidden[:, 1:-1].unique().tolist()) == {1, 4, 9}
    assert float((hidden[:, 1:-1] != 9).float().mean()) == pytest.approx(0.25, abs=0.02)
