"""The teacher: a trained classifier of sequences, and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenizers import Tokenizer

from exporter.atomic_writing import write_atomically
from exporter.checkpoint import load_checkpoint
from exporter.checkpoint.huggingface import ByName
from exporter.errors import CheckpointError
from exporter.models.saving import CONFIG, WEIGHTS, write_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "TEACHER_FILES",
    "Teacher",
    "load_teacher",
    "read_model",
    "read_tokenizer",
    "save_teacher",
]

TEACHER_FILES = (CONFIG, WEIGHTS, "tokenizer.json", "tokenizer_config.json")
"""What :func:`save_teacher` writes."""


@dataclass(frozen=True)
class Teacher:
    """A classifier of sequences in Hugging Face's form, in eval mode, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: Tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, by index."""
        names = self.model.config.id2label
        return tuple(names[index] for index in sorted(names))

    @property
    def width(self) -> int:
        """Width of the sentence embedding."""
        return int(self.model.config.hidden_size)


def load_teacher(folder: Path) -> Teacher:
    """Read a classifier of sequences that Hugging Face's ``save_pretrained`` wrote.

    Raises:
        CheckpointError: a file is missing or damaged, or the folder holds no classifier that
            gives each text one of several labels.
    """
    model = read_model(folder)
    if not type(model).__name__.endswith("ForSequenceClassification"):
        raise CheckpointError(f"{folder} holds no classifier of sequences, so no teacher")
    teacher = Teacher(model, read_tokenizer(folder, int(model.config.max_position_embeddings)))
    kind = model.config.problem_type or "single_label_classification"
    if kind != "single_label_classification" or len(teacher.labels) < 2:
        raise CheckpointError(
            f"{folder} does not give a text one of several labels (problem_type {kind}, "
            f"{len(teacher.labels)} labels), so its answers cannot be distilled"
        )
    if max(teacher.tokenizer.get_vocab().values(), default=0) >= model.config.vocab_size:
        raise CheckpointError(
            f"{folder / 'tokenizer.json'} is of another model: it has more pieces than the "
            f"{model.config.vocab_size} of config.json"
        )
    return teacher


def save_teacher(teacher: Teacher, folder: Path) -> None:
    """Write the classifier and its tokenizer in Hugging Face's form."""
    content = json.loads(teacher.model.config.to_json_string(use_diff=False))
    content["architectures"] = [type(teacher.model).__name__]
    write_model(folder, content, teacher.model.state_dict())
    tokenizer = teacher.tokenizer
    limit = tokenizer.truncation["max_length"] if tokenizer.truncation else None
    config = {
        "tokenizer_class": "BertTokenizer",
        "model_max_length": limit,
        "do_lower_case": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_atomically(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    write_atomically(folder / "tokenizer_config.json", _json(config))


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def read_model(folder: Path) -> PreTrainedModel:
    """Read a model of transformers; a missing weight is an error, never a random value.

    Raises:
        CheckpointError: a file is missing or damaged, or the folder is not Hugging Face's.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder: give one with config.json and weights")
    module = load_checkpoint(folder).module
    if not isinstance(module, ByName):
        raise CheckpointError(f"{folder} is no Hugging Face folder")
    return cast("PreTrainedModel", module.model.eval())


def read_tokenizer(folder: Path, max_length: int) -> Tokenizer:
    """Read ``tokenizer.json``; texts are cut to ``max_length`` pieces, and not padded.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} holds no tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the class is plain Exception
        raise CheckpointError(f"{path} is no tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer
