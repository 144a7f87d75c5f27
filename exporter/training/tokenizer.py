"""Tokenizers as the models need them: lower-cased Unigram pieces, and files to load them from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import UnigramTrainer

from exporter.atomic_writing import write_atomically

__all__ = ["MASK_ID", "PAD_ID", "SPECIAL_TOKENS", "UNK_ID", "save_tokenizer", "train_tokenizer"]

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(5)

# ASCII punctuation but the apostrophe, so that "mess" and "mess." share a piece and
# "don't" stays near its own. Spelled out, because \w and \p{P} do not mean the same to
# Rust's and JavaScript's regular expressions.
_PUNCTUATION = r"[!-&(-/:-@\[-`{-~]"
_SCORE_DIGITS = 3


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, max_length: int) -> Tokenizer:
    """Train a Unigram tokenizer; the same texts in the same order give the same one.

    Its encoding is ``[CLS] pieces [SEP]``, cut to ``max_length`` ids and not padded.
    The special tokens have the ids 0 to 4, in the order of ``SPECIAL_TOKENS``.

    Args:
        texts: what to learn the pieces from.
        vocab_size: number of pieces, special tokens included; fewer where the texts
            hold no more.
        max_length: most ids of an encoding, the two special ones included.
    """
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(_PUNCTUATION), "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        unk_token=SPECIAL_TOKENS[UNK_ID],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer = _with_canonical_vocabulary(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", CLS_ID), ("[SEP]", SEP_ID)],
    )
    tokenizer.enable_truncation(max_length)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and the ``tokenizer_config.json`` that transformers wants."""
    truncation = tokenizer.truncation
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": truncation["max_length"] if truncation else None,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "padding_side": "right",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    text = tokenizer.to_str(pretty=True) + "\n"
    write_atomically(folder / "tokenizer.json", text.encode())
    write_atomically(
        folder / "tokenizer_config.json", (json.dumps(config, indent=2) + "\n").encode()
    )


def _with_canonical_vocabulary(tokenizer: Tokenizer) -> Tokenizer:
    # The trainer sums over threads in any order: scores differ in the last digits from
    # run to run, and pieces of (nearly) one score change places, hence ids.
    content = json.loads(tokenizer.to_str())
    pieces = content["model"]["vocab"]
    special = [piece for piece in pieces if piece[0] in SPECIAL_TOKENS]
    learned = [(piece, round(score, _SCORE_DIGITS)) for piece, score in pieces[len(special) :]]
    learned.sort(key=lambda item: (-item[1], item[0]))
    content["model"]["vocab"] = [*special, *learned]
    return Tokenizer.from_str(json.dumps(content))
