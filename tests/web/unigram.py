"""A tokenizer of ALBERT's kind, with a small vocabulary that is counted, and so always the same."""

from __future__ import annotations

import math
import string
from collections import Counter

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.web.sentences import SENTENCES

__all__ = ["unigram_tokenizer"]

_LONGEST = 8


def unigram_tokenizer() -> Tokenizer:
    """Return it: Unigram pieces with ▁, and ALBERT's normalizers and special tokens."""
    counts = Counter(dict.fromkeys(f"▁{string.ascii_lowercase}{string.digits}.,!?'", 1))
    for word in " ".join(SENTENCES).lower().split():
        marked = f"▁{word}"
        for start in range(len(marked)):
            for end in range(start + 1, min(start + _LONGEST, len(marked)) + 1):
                counts[marked[start:end]] += 1
    pieces = [(piece, n) for piece, n in sorted(counts.items()) if n > 2 or len(piece) == 1]
    total = sum(n for _, n in pieces)
    special = [("<pad>", 0.0), ("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0)]
    scored = [(piece, math.log(n / total)) for piece, n in pieces]
    tokenizer = Tokenizer(models.Unigram([*special, *scored], unk_id=1))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens([name for name, _ in special])
    return tokenizer
