"""More text of the kind at hand: words give way to others that a teacher takes for similar."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch.nn import functional as F

from exporter.training.teacher import Teacher

__all__ = ["similar_words", "vary"]

_WORD = re.compile(r"[a-z]{3,}")
_ROWS = 1024


@torch.no_grad()
def similar_words(teacher: Teacher, texts: Iterable[str], count: int = 12) -> dict[str, list[str]]:
    """Return, for each word of ``texts`` that is a piece, the pieces nearest to it.

    Near is a high cosine of the teacher's word embeddings. Words are of three and more
    ASCII letters; they come in lower case, the nearest one first.
    """
    vocabulary = teacher.tokenizer.get_vocab()
    words = sorted(word for word in vocabulary if _WORD.fullmatch(word))
    used = {word for text in texts for word in _WORD.findall(text.lower())}
    table = teacher.model.get_input_embeddings().weight[[vocabulary[word] for word in words]]
    table = F.normalize(table.float(), dim=-1)  # [W, H]
    asked = [index for index, word in enumerate(words) if word in used]
    found: dict[str, list[str]] = {}
    for start in range(0, len(asked), _ROWS):
        rows = asked[start : start + _ROWS]
        nearest = (table[rows] @ table.T).topk(min(count + 1, len(words)), dim=-1).indices
        for row, others in zip(rows, nearest.tolist(), strict=True):
            found[words[row]] = [words[other] for other in others if other != row][:count]
    return found


def vary(
    texts: Sequence[str], similar: Mapping[str, Sequence[str]], *, share: float, seed: int
) -> list[str]:
    """Return each text, in lower case, with about ``share`` of its known words replaced.

    The meaning may change, even into its opposite: what such a text says is for the teacher
    to tell. Texts in which nothing was replaced are left out. The same seed gives the same.
    """
    chance = random.Random(seed)

    def other(match: re.Match[str]) -> str:
        word = match[0]
        if word not in similar or chance.random() >= share:
            return word
        return chance.choice(similar[word])

    varied = ((text.lower(), _WORD.sub(other, text.lower())) for text in texts)
    return [new for old, new in varied if new != old]
