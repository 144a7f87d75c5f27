"""A smaller WordPiece vocabulary, cut from a teacher's: the pieces that a corpus needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from tokenizers import Tokenizer, processors

from exporter.errors import CheckpointError
from exporter.training.tokenizer import CLS_ID, SEP_ID, SPECIAL_TOKENS

__all__ = ["kept_rows", "trim_tokenizer"]


def trim_tokenizer(
    tokenizer: Tokenizer, texts: Sequence[str], *, vocab_size: int, max_length: int
) -> Tokenizer:
    """Keep the special tokens, single characters, and the pieces that ``texts`` use most.

    A word whose piece went is written with the shorter pieces that stayed, so ordinary
    text has no unknown tokens. Ties go to the piece with the lower id, which in published
    vocabularies is about the more frequent one. Ids are new: the special tokens are 0 to 4
    in the order of ``SPECIAL_TOKENS``, the other pieces follow in their old order.

    Args:
        tokenizer: a WordPiece tokenizer with these special tokens.
        texts: what the kept pieces are counted in.
        vocab_size: number of pieces; fewer where the tokenizer has no more.
        max_length: most ids of an encoding, the two special ones included.

    Raises:
        CheckpointError: another kind of tokenizer, or no room for the single characters.
    """
    content = json.loads(tokenizer.to_str())
    if content["model"]["type"] != "WordPiece":
        raise CheckpointError(
            f"only a WordPiece vocabulary can be trimmed, not {content['model']['type']}"
        )
    vocabulary: dict[str, int] = content["model"]["vocab"]
    if missing := [token for token in SPECIAL_TOKENS if token not in vocabulary]:
        raise CheckpointError(f"the tokenizer has no {missing[0]}")
    prefix = content["model"]["continuing_subword_prefix"]
    counts = Counter(
        piece
        for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)
        for piece in encoding.tokens
    )
    rest = [piece for piece in vocabulary if piece not in SPECIAL_TOKENS]
    always = {p for p in rest if len(p.removeprefix(prefix)) == 1 and (p.isascii() or counts[p])}
    room = vocab_size - len(SPECIAL_TOKENS) - len(always)
    if room < 0:
        raise CheckpointError(
            f"{vocab_size} pieces have no room for the {len(always)} single characters"
        )
    # Python sorts stably: among equal counts the order of ids stays.
    ranked = sorted((p for p in rest if p not in always), key=lambda p: (-counts[p], vocabulary[p]))
    kept = always.union(ranked[:room])
    pieces = [*SPECIAL_TOKENS, *sorted(kept, key=vocabulary.__getitem__)]
    content["model"]["vocab"] = {piece: index for index, piece in enumerate(pieces)}
    content["added_tokens"] = [
        {**token, "id": SPECIAL_TOKENS.index(token["content"])}
        for token in content["added_tokens"]
        if token["content"] in SPECIAL_TOKENS
    ]
    content["post_processor"] = content["padding"] = None
    trimmed = Tokenizer.from_str(json.dumps(content))
    trimmed.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", CLS_ID), ("[SEP]", SEP_ID)],
    )
    trimmed.enable_truncation(max_length)
    return trimmed


def kept_rows(trimmed: Tokenizer, original: Tokenizer) -> list[int]:
    """Return, for each id of ``trimmed``, the id of the same piece in ``original``."""
    old, new = original.get_vocab(), trimmed.get_vocab()
    return [old[piece] for piece, _ in sorted(new.items(), key=lambda item: item[1])]
