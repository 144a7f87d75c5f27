"""Training the demo model from random weights on rated sentences."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.models import EncoderConfig, SharedEncoder, SharingScheme
from exporter.training.batches import encode, pad, shuffled_batches
from exporter.training.data import Corpus, clearly_rated
from exporter.training.evaluate import CLEAR_THRESHOLD, accuracy
from exporter.training.tokenizer import MASK_ID, SPECIAL_TOKENS, UNK_ID, train_tokenizer

__all__ = ["LABELS", "Progress", "TrainingPlan", "soft_targets", "train_demo_model"]

LABELS = ("negative", "positive")


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that decides the result, besides the data, the machine and its libraries.

    Args:
        vocab_size: pieces of the tokenizer.
        embedding_size: width of the factorized embedding.
        hidden_size: width of the encoder.
        intermediate_size: width of the feed-forward half.
        heads: attention heads.
        depth: passes through the one shared layer.
        max_length: tokens of the longest input.
        epochs: passes over the training sentences.
        batch_size: sentences per step.
        learning_rate: peak of the warm-up and cosine schedule.
        warmup: share of the steps that warm up.
        weight_decay: of matrices; vectors are not decayed.
        dropout: of embeddings, attention and both halves' outputs.
        word_dropout: share of the tokens hidden from the model, as mask or unknown.
        sharpness: factor on a mean rating before the sigmoid that makes it a target; at
            1.75 the target is about the share of people who rate the sentence positive.
        average_decay: of the exponential moving average of the weights that is kept.
        shallow_phases: ``(until, passes)``: up to this share of the steps, so many
            passes; after the last one, ``depth``. A shared layer may be trained with
            fewer passes first, at a fraction of the cost.
        seed: of weights, order and dropout.
        threads: CPU threads; another number sums in another order.
    """

    vocab_size: int = 8000
    embedding_size: int = 64
    hidden_size: int = 192
    intermediate_size: int = 384
    heads: int = 6
    depth: int = 6
    max_length: int = 128
    epochs: int = 8
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.06
    weight_decay: float = 0.05
    dropout: float = 0.2
    word_dropout: float = 0.1
    sharpness: float = 1.75
    average_decay: float = 0.995
    shallow_phases: tuple[tuple[float, int], ...] = ((0.35, 2), (0.65, 4))
    seed: int = 0
    threads: int = 2

    def passes_at(self, done: float) -> int:
        """Passes to train with when this share (0 to 1) of the steps is done."""
        for until, passes in self.shallow_phases:
            if done < until:
                return min(passes, self.depth)
        return self.depth


@dataclass(frozen=True)
class Progress:
    """Where the training stands, after each step.

    ``epoch`` counts from 1; ``loss`` is the last step's; ``development`` is the accuracy
    on the clearly rated development sentences, with as many passes as the step took, at
    the end of an epoch only.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    development: float | None = None


def train_demo_model(
    corpus: Corpus, plan: TrainingPlan, report: Callable[[Progress], None] | None = None
) -> tuple[SharedEncoder, Tokenizer]:
    """Train tokenizer and classifier; the same plan on the same machine gives the same bits.

    Args:
        corpus: sentences; ``held_out`` and ``foreign`` are not looked at.
        plan: sizes, schedule and seed.
        report: called after each step.

    Returns:
        The classifier in eval mode (averaged weights, labels ``negative`` and
        ``positive``) and its tokenizer.
    """
    texts = [sentence.text for sentence in corpus.training]
    tokenizer = train_tokenizer(texts, vocab_size=plan.vocab_size, max_length=plan.max_length)
    sequences = encode(tokenizer, texts)
    targets = soft_targets(torch.tensor([s.rating for s in corpus.training]), plan.sharpness)
    development = clearly_rated(corpus.development, CLEAR_THRESHOLD)

    with _reproducible(plan.seed, plan.threads):
        model = _new_model(plan, tokenizer.get_vocab_size())
        average = copy.deepcopy(model).eval()
        optimizer = _optimizer(model, plan)
        generator = torch.Generator().manual_seed(plan.seed)
        steps = plan.epochs * math.ceil(len(sequences) / plan.batch_size)
        step = 0
        for epoch in range(1, plan.epochs + 1):
            lengths = [len(sequence) for sequence in sequences]
            model.train()
            for indices in shuffled_batches(lengths, plan.batch_size, generator):
                _set_learning_rate(optimizer, plan, step / steps)
                _set_passes(model, plan.passes_at(step / steps))
                ids, mask = pad([sequences[index] for index in indices])
                logits = model(hide_tokens(ids, plan.word_dropout), mask)
                loss = F.cross_entropy(logits, targets[indices])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                step += 1
                _update_average(average, model, plan.average_decay, step)
                if report is not None:
                    report(Progress(step, steps, epoch, loss.item()))
            if report is not None:
                _set_passes(average, plan.passes_at((step - 1) / steps))
                score = accuracy(average, tokenizer, development).accuracy
                report(Progress(step, steps, epoch, loss.item(), score))
    _set_passes(average, plan.depth)
    return average, tokenizer


def soft_targets(ratings: Tensor, sharpness: float) -> Tensor:
    """Map mean ratings ``[N]`` to probabilities ``[N, 2]`` of negative and positive.

    A sentence people rate as neutral teaches "undecided" instead of one side by chance.
    """
    positive = torch.sigmoid(sharpness * ratings)
    return torch.stack([1 - positive, positive], dim=1)


def hide_tokens(ids: Tensor, share: float) -> Tensor:
    """Replace about ``share`` of the ordinary tokens ``[B, S]`` by mask or unknown, at random."""
    chosen = (torch.rand(ids.shape, device=ids.device) < share) & (ids >= len(SPECIAL_TOKENS))
    stand_in = torch.where(torch.rand(ids.shape, device=ids.device) < 0.5, MASK_ID, UNK_ID)
    return torch.where(chosen, stand_in, ids)


@contextmanager
def _reproducible(seed: int, threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _new_model(plan: TrainingPlan, vocab_size: int) -> SharedEncoder:
    config = EncoderConfig(
        vocab_size=vocab_size,
        embedding_size=plan.embedding_size,
        hidden_size=plan.hidden_size,
        num_hidden_layers=plan.depth,
        num_attention_heads=plan.heads,
        intermediate_size=plan.intermediate_size,
        max_position_embeddings=plan.max_length,
        sharing=SharingScheme("all"),
        head="sequence_classification",
        labels=LABELS,
        dropout=plan.dropout,
    )
    model = SharedEncoder(config)
    # ALBERT's 0.02 throughout leaves a token's embedding, after the projection, far below
    # what one layer adds to it: with little data, epochs pass before words tell apart.
    nn.init.normal_(model.token_embedding.weight, std=0.1)
    if isinstance(model.embedding_projection, nn.Linear):
        nn.init.normal_(model.embedding_projection.weight, std=plan.embedding_size**-0.5)
    return model


def _set_passes(model: SharedEncoder, passes: int) -> None:
    model.attention_order = [0] * passes
    model.ffn_order = [0] * passes


def _optimizer(model: SharedEncoder, plan: TrainingPlan) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.learning_rate, betas=(0.9, 0.98))


def _set_learning_rate(optimizer: torch.optim.Optimizer, plan: TrainingPlan, done: float) -> None:
    rise = (done + 1e-4) / plan.warmup if plan.warmup else 1.0
    rate = plan.learning_rate * min(rise, 0.5 * (1 + math.cos(math.pi * done)))
    for group in optimizer.param_groups:
        group["lr"] = rate


@torch.no_grad()
def _update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    # Early on, a long memory would keep the random start.
    decay = min(decay, (1 + step) / (10 + step))
    for kept, current in zip(average.parameters(), model.parameters(), strict=True):
        kept.lerp_(current, 1 - decay)
