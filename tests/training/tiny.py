"""A teacher of a few thousand weights, and sentences whose label one word decides."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification

from exporter.training.data import Rated
from exporter.training.distill import DistillationPlan
from exporter.training.loop import Schedule
from exporter.training.teacher import Teacher, save_teacher

NOUNS = ("film", "plot", "actor", "story", "scene")
RATINGS = {"lovely": 3.0, "superb": 3.5, "dreadful": -3.0, "boring": -2.5}
OLD_SPECIAL = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

PLAN = DistillationPlan(
    layers=3,
    vocab_size=70,
    embedding_size=8,
    hidden_size=16,
    intermediate_size=24,
    heads=2,
    max_length=24,
    word_dropout=0.0,
    shallow_phases=(),
    schedule=Schedule(epochs=2, batch_size=16, learning_rate=5e-3, average_decay=0.9, threads=1),
)


def sentences(count: int, seed: int = 0) -> list[Rated]:
    rng = random.Random(seed)
    words = [
        (rng.choice(NOUNS), rng.choice(NOUNS), rng.choice(list(RATINGS))) for _ in range(count)
    ]
    return [Rated(f"This {a} with a {b} is {w}.", RATINGS[w]) for a, b, w in words]


def tokenizer() -> Tokenizer:
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [*OLD_SPECIAL, ".", *letters, *(f"##{letter}" for letter in letters)]
    pieces += ["this", "with", "is", *NOUNS, *RATINGS, "rare", "##ness"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    result = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    result.normalizer = normalizers.BertNormalizer(lowercase=True)
    result.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    result.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    result.add_special_tokens(["[PAD]", *OLD_SPECIAL[2:]])
    result.enable_truncation(24)
    return result


def bert(seed: int = 0, layers: int = 3, width: int = 16) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=tokenizer().get_vocab_size(),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        num_labels=2,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(config)
        for parameter in model.parameters():  # LayerNorms and biases that differ, too
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def teacher(seed: int = 0, width: int = 16) -> Teacher:
    return Teacher(bert(seed, width=width), tokenizer())


def teacher_folder(folder: Path) -> Path:
    save_teacher(teacher(), folder)
    return folder
