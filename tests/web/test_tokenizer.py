"""The page's tokenizer against the one in Python, on 2,000 strings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.web.driving import Driven
from tests.web.serving import PagesServer
from tests.web.strings import strings
from tests.web.unigram import unigram_tokenizer

LIMIT = 128

# Strings that come out differently, and the characters that every one of them has some of.
# JavaScript takes U+FEFF for a space, and it knows more punctuation, that of Unicode after 8.0.
KNOWN = {
    "unigram": ({89, 1306, 1857}, "\ufeff"),
    "demo": (
        {786, 836, 863, 910, 974, 1096, 1198, 1219, 1356, 1587, 1695, 1709, 1751},
        "\u061d\u09fd\u0a76\u0c77\u0c84",
    ),
}

ENCODE = """
(async () => {
  const catalogue = await fetch('/api/artifacts.json').then((answer) => answer.json());
  const { files } = catalogue.packages['@huggingface/tokenizers'];
  const [{ encodeText }, { Tokenizer }] = await Promise.all([
    import('/demo/text.js'),
    import(files['tokenizers.min.mjs'].url),
  ]);
  const tokenizer = new Tokenizer(DEFINITION, {});
  const strings = STRINGS;
  const encode = (limit) => strings.map((text) => encodeText(tokenizer, text, limit).ids);
  return [encode(null), encode(LIMIT)];
})()
"""


@pytest.mark.parametrize("kind", ["unigram", "demo"])
def test_page_and_python_agree_on_all_strings_but_the_known_ones(
    chromium: Driven, server: PagesServer, demo: Path, kind: str
) -> None:
    texts = strings()
    assert len(texts) == len(strings()) == 2000
    if kind == "unigram":
        tokenizer = unigram_tokenizer()
    else:
        tokenizer = Tokenizer.from_file(str(demo / "tokenizer.json"))
    chromium.open(f"{server.url}/demo/")
    code = ENCODE.replace("DEFINITION", tokenizer.to_str()).replace("LIMIT", str(LIMIT))
    whole, cut = chromium.evaluate(code.replace("STRINGS", json.dumps(texts)))
    tokenizer.no_truncation()
    wanted = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert max(map(len, wanted)) > 1_000
    different = {number for number, ids in enumerate(whole) if ids != wanted[number]}
    known, characters = KNOWN[kind]
    assert different == known
    assert all(set(characters) & set(texts[number]) for number in known)
    tokenizer.enable_truncation(LIMIT)
    wanted = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert {number for number, ids in enumerate(cut) if ids != wanted[number]} <= known
    assert min(map(len, cut)) == 2 and max(map(len, cut)) == LIMIT
