"""Text → what a model takes: the artifact's own tokenizer, cut to the model's length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exporter.artifact import Artifact
from exporter.errors import BenchmarkError
from exporter.evaluation.examples import Examples
from exporter.inputs import Feeds, InputSpec, ModelInputs
from exporter.json_files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Batch", "EncodedText", "TextEncoder"]


@dataclass(frozen=True)
class EncodedText:
    """Token ids, token types, and whether the end of the text was cut off."""

    ids: Sequence[int]
    types: Sequence[int]
    cut: bool


@dataclass(frozen=True)
class Batch:
    """The arrays of one run; row *i* is text ``rows[i]``. Rows beyond these are filling."""

    rows: tuple[int, ...]
    feeds: Feeds


class TextEncoder:
    """Tokenizes text, and lays it out as the model's inputs.

    A batch is padded at its end to its longest text, or to the model's fixed length. Where
    the model takes no mask, a batch holds texts of one length only. A fixed number of rows is
    filled up with the last text.

    Args:
        tokenizer: its padding is not used; its truncation only if the model's length is
            not known.
        inputs: what the model takes: ids, and ``attention_mask`` and ``token_type_ids`` if
            it has them.
        pad_id: id that fills the end of a row.

    Raises:
        BenchmarkError: the model needs an input that text does not give.
    """

    def __init__(self, tokenizer: Tokenizer, inputs: ModelInputs, pad_id: int = 0) -> None:
        if tokenizer.padding is not None:
            pad_id = tokenizer.padding["pad_id"]
            tokenizer.no_padding()
        self._specs = {_meaning(spec): spec for spec in inputs.specs if not spec.optional}
        other = [spec.name for meaning, spec in self._specs.items() if meaning == spec.name]
        if "ids" not in self._specs or other:
            raise BenchmarkError(
                f"this model cannot be fed with text: it takes "
                f"{', '.join(spec.name for spec in inputs.specs)}"
            )
        rows, length = self._specs["ids"].shape
        self._fixed_rows = rows if isinstance(rows, int) else None
        self._fixed_length = length if isinstance(length, int) else None
        self.limit = inputs.limits.get(length) if isinstance(length, str) else length
        if self.limit is not None:
            tokenizer.enable_truncation(self.limit)
        elif tokenizer.truncation is not None:
            self.limit = tokenizer.truncation["max_length"]
        self._tokenizer, self._pad_id = tokenizer, pad_id

    @classmethod
    def load(cls, artifact: Artifact) -> TextEncoder:
        """Read the tokenizer of an artifact.

        Raises:
            BenchmarkError: there is none, it cannot be read, or the package that reads it
                is not installed.
        """
        path = artifact.folder / "tokenizer.json"
        if not path.is_file():
            raise BenchmarkError(
                f"{artifact.folder} has no tokenizer.json, so it cannot read text; export again "
                "from a folder that holds one beside the model"
            )
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise BenchmarkError(
                "reading text needs the package tokenizers: pip install 'albert-export[text]'"
            ) from error
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the class is plain Exception
            raise BenchmarkError(f"{path} cannot be read: {error}") from error
        config = artifact.folder / "config.json"
        pad_id = read_json(config).get("pad_token_id") if config.is_file() else None
        return cls(tokenizer, artifact.inputs, pad_id if isinstance(pad_id, int) else 0)

    def encode(self, examples: Examples) -> list[EncodedText]:
        """Tokenize every text.

        Raises:
            BenchmarkError: a text without any token.
        """
        encodings = self._tokenizer.encode_batch([row.text for row in examples.rows])
        for row, encoding in zip(examples.rows, encodings, strict=True):
            if not encoding.ids:
                raise BenchmarkError(f"{examples.name}, line {row.line}: no token in this text")
        return [EncodedText(e.ids, e.type_ids, bool(e.overflowing)) for e in encodings]

    def batches(self, texts: Sequence[EncodedText], size: int) -> Iterator[Batch]:
        """Lay out all texts, in their order if ``size`` is 1, else by length."""
        size = self._fixed_rows or size
        order = list(range(len(texts)))
        if size > 1:
            order.sort(key=lambda row: len(texts[row].ids))
        mixed = "mask" in self._specs or self._fixed_length is not None
        start = 0
        while start < len(order):
            rows = order[start : start + size]
            if not mixed:
                length = len(texts[rows[0]].ids)
                rows = [row for row in rows if len(texts[row].ids) == length]
            yield Batch(tuple(rows), self._feeds([texts[row] for row in rows]))
            start += len(rows)

    def _feeds(self, texts: list[EncodedText]) -> Feeds:
        texts += texts[-1:] * ((self._fixed_rows or 0) - len(texts))
        length = self._fixed_length or max(len(text.ids) for text in texts)
        shape = (len(texts), length)
        ids = np.full(shape, self._pad_id, np.int64)
        mask, types = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, text in enumerate(texts):
            end = len(text.ids)
            ids[row, :end], types[row, :end], mask[row, :end] = text.ids, text.types, 1
        arrays = {"ids": ids, "mask": mask, "types": types}
        return {spec.name: arrays[name].astype(spec.dtype) for name, spec in self._specs.items()}


def _meaning(spec: InputSpec) -> str:
    """What part of a text this input takes; its own name if none."""
    if len(spec.shape) != 2:
        return spec.name
    if spec.name == "token_type_ids":
        return "types"
    if spec.name == "position_ids":
        return spec.name
    return spec.role if spec.role in ("ids", "mask") else spec.name
