"""Classifiers that count words, as artifacts written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx.parser
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from exporter.artifact import Artifact, StagedArtifact
from exporter.inputs import InputSpec, ModelInputs

__all__ = ["IDS", "MASK", "PADDING", "WORDS", "make_artifact", "make_tokenizer", "word_counter"]

PADDING, UNKNOWN, GOOD, BAD, FILM, END = range(6)
WORDS = {"[PAD]": PADDING, "[UNK]": UNKNOWN, "good": GOOD, "bad": BAD, "film": FILM, "[END]": END}
IDS = InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", len(WORDS))
MASK = InputSpec("attention_mask", "int64", ("batch", "sequence"), "mask")


def make_tokenizer() -> Tokenizer:
    """Words, and an ``[END]`` after them."""
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [END]", special_tokens=[("[END]", END)]
    )
    return tokenizer


def word_counter(film: float = 0.0, output: str = "logits") -> onnx.ModelProto:
    """A model whose two logits are the numbers of bad and of good words.

    Padding that is not masked counts as many bad words; ``film`` is added to the bad ones for
    each "film".
    """
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        counter (int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask)
            => (float[batch, 2] {output})
        <float[6, 2] table = {{50, 0, 0, 0, 0, 1, 1, 0, {film}, 0, 0.25, 0}},
         int64[1] words = {{1}}, int64[1] last = {{2}}>
        {{
            counts = Gather (table, input_ids)
            column = Unsqueeze (attention_mask, last)
            present = Cast <to = 1> (column)
            counted = Mul (counts, present)
            {output} = ReduceSum <keepdims = 0> (counted, words)
        }}
    """)


def make_artifact(
    folder: Path,
    variants: Mapping[str, onnx.ModelProto],
    *,
    specs: Sequence[InputSpec] = (IDS, MASK),
    limits: Mapping[str, int] | None = None,
    labels: Sequence[str] | None = ("negative", "positive"),
    tokenizer: bool = True,
) -> Artifact:
    """Write an artifact of these models, with a tokenizer and a config."""
    with StagedArtifact(folder) as staged:
        records: list[dict[str, Any]] = []
        for variant, model in variants.items():
            path = f"{variant}.onnx"
            onnx.save(model, staged.folder / path)
            size = (staged.folder / path).stat().st_size
            records.append({"variant": variant, "path": path, "file_bytes": size})
        if tokenizer:
            make_tokenizer().save(str(staged.folder / "tokenizer.json"))
        if labels is not None:
            named = {str(index): label for index, label in enumerate(labels)}
            staged.add_json("config.json", {"id2label": named, "pad_token_id": PADDING})
        inputs = ModelInputs(tuple(specs), limits or {}).to_dict()
        return staged.commit({"inputs": inputs, "models": records})
