"""Strings for tokenizers: as people write them, and as nobody should."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.web.sentences import SENTENCES

__all__ = ["strings"]

_LANGUAGES = (
    "Der Film war überraschend gut, aber die Größe stimmt nicht.",
    "L'histoire est touchante ; les acteurs, eux, jouent faux.",
    "¿Qué tal la película? ¡Buenísima, señor!",
    "Il caffè è già freddo, perché così tardi?",
    "O pão não está fresco, mas a ação é ótima.",
    "Żółw i gęś poszły na łąkę.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Þetta var æðislegt kvöld á Íslandi.",
    "Bu ışık İstanbul'da çok güzel.",
    "Фильм скучный, но музыка хорошая.",
    "Η ταινία ήταν πολύ ωραία, αλλά μεγάλη.",
    "הסרט היה נהדר, אבל ארוך מדי.",
    "كان الفيلم رائعًا لكنه طويل.",
    "فیلم خوب بود، اما طولانی.",
    "फ़िल्म बहुत अच्छी थी।",
    "ছবিটা খুব ভালো ছিল।",
    "படம் மிகவும் நன்றாக இருந்தது.",
    "หนังเรื่องนี้สนุกมาก",
    "ຮູບເງົາເລື່ອງນີ້ດີຫຼາຍ",
    "Phim này rất hay, nhưng hơi dài quá.",
    "这部电影很好看，但是太长了。",
    "這部電影很好看，但是太長了。",
    "この映画はとても面白かったです。",
    "ﾊﾝｶｸｶﾅと全角ＡＢＣ１２３",
    "이 영화는 정말 재미있었어요.",
    "ფილმი ძალიან კარგი იყო.",
    "Ֆիլմը շատ լավն էր։",
    "ፊልሙ በጣም ጥሩ ነበር።",
)
_EMOJI = "🙂😂👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇯🇵❤️1️⃣🧑‍🚀"
_ODD = (
    "", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\u2028",
    "\u200d", "\u202eabc", "\u2066good\u2069", "\x00", "a\x00b", "\x07bell", "\x1b[2J", "\x7f",
    "\ufffd", "\ufffe", "\U0010ffff", "[CLS]", "[SEP] [MASK]", "<pad>", "<unk>", "[PAD]good",
    "▁good", "▁▁", "good▁bad", "''``\"\"", "&amp; <b>bold</b>", "{{ 7 * 7 }}", "%s %d", "\\n",
    "....", "!?!?!?", "1,234.56", "3.14e-10", "٣٤٥", "½ ⅓ ²³", "ﬁne ﬂow", "ℌello", "①②③", "㍿",
    "x́̂̃y", "é e\u0301 é", "Å Å Å", "ñ\u0303", "क्ष", "각 \u1100\u1161\u11a8", "Zalgo: "
    + "".join(f"{letter}{chr(0x300 + i)}{chr(0x330 + i)}" for i, letter in enumerate("corrupted")),
    "a" * 10_000, "good " * 2_000, "🙂" * 10_000, "é" * 10_000, "字" * 10_000, "▁" * 10_000,
    " " * 10_000, "e" + "\u0301" * 10_000, "good bad\n" * 1_112,
)  # fmt: skip
_BLOCKS = (
    (0x20, 0x7F), (0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530),
    (0x590, 0x700), (0x900, 0xE00), (0x1E00, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3100),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xE000, 0xE100), (0xFE00, 0xFFF0), (0x1D400, 0x1D800),
    (0x1F300, 0x1FAFF), (0xE0000, 0xE0080),
)  # fmt: skip


def strings() -> list[str]:
    """Return 2,000 strings, always the same; all of them can be written in UTF-8."""
    made = [*SENTENCES, *_LANGUAGES, _EMOJI, *_ODD]
    made += [change for sentence in SENTENCES for change in _changes(sentence)]
    random_source = random.Random(20)
    while len(made) < 2000:
        made.append(_drawn(random_source))
    return made


def _changes(sentence: str) -> Iterator[str]:
    words = sentence.split()
    yield sentence.upper()
    yield sentence.lower()
    yield sentence.title()
    yield "".join(words)
    yield "  ".join(words) + " "
    yield "\n".join(words)
    yield " ".join(reversed(words))
    yield f"“{sentence}” — {_EMOJI[len(sentence) % 8]}"
    yield sentence.replace("e", "é").replace("a", "ä")
    yield sentence.replace(" ", "\u00a0")
    yield "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in sentence)  # full width
    yield " ".join(word + word[-1] * 3 for word in words)


def _drawn(source: random.Random) -> str:
    """Return letters of a few blocks, with words of a sentence between them."""
    blocks = source.sample(_BLOCKS, source.randint(1, 3))
    parts = []
    for _ in range(source.randint(1, 12)):
        if source.random() < 0.25:
            parts.append(source.choice(source.choice(SENTENCES).split()))
        first, end = source.choice(blocks)
        parts.append(
            "".join(chr(source.randrange(first, end)) for _ in range(source.randint(1, 6)))
        )
    return source.choice(("", " ")).join(parts)
