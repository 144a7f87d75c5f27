from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, normalizers

from exporter.errors import BenchmarkError
from exporter.evaluation.examples import Example, Examples
from exporter.evaluation.texts import TextEncoder
from exporter.inputs import Feeds, InputSpec, ModelInputs
from tests.evaluation.helpers import IDS, MASK, WORDS, make_artifact, make_tokenizer, word_counter

GOOD, BAD, FILM, END = (WORDS[word] for word in ("good", "bad", "film", "[END]"))
TYPES = InputSpec("token_type_ids", "int32", ("batch", "sequence"), "ids", 2)


def texts(*values: str) -> Examples:
    return Examples("d.csv", "0" * 64, tuple(Example(v, "0", i + 2) for i, v in enumerate(values)))


def encoder(
    *specs: InputSpec, limit: int | None = None, pad_id: int = 0, cut_at: int | None = None
) -> TextEncoder:
    tokenizer = make_tokenizer()
    if cut_at is not None:
        tokenizer.enable_truncation(cut_at)
    limits = {} if limit is None else {"sequence": limit}
    return TextEncoder(tokenizer, ModelInputs(specs or (IDS, MASK), limits), pad_id)


def feeds(made: TextEncoder, size: int, *values: str) -> list[tuple[Sequence[int], Feeds]]:
    return [(batch.rows, batch.feeds) for batch in made.batches(made.encode(texts(*values)), size)]


def test_one_text_a_run_comes_in_order_and_without_padding() -> None:
    found = feeds(encoder(), 1, "good film", "bad")
    assert [rows for rows, _ in found] == [(0,), (1,)]
    assert found[0][1]["input_ids"].tolist() == [[GOOD, FILM, END]]
    assert found[1][1]["input_ids"].tolist() == [[BAD, END]]
    assert found[1][1]["attention_mask"].tolist() == [[1, 1]]


def test_batches_are_sorted_by_length_and_padded_at_the_end() -> None:
    found = feeds(encoder(pad_id=1), 2, "good good film", "bad", "good film")
    assert [rows for rows, _ in found] == [(1, 2), (0,)]
    ids, mask = found[0][1]["input_ids"], found[0][1]["attention_mask"]
    assert ids.tolist() == [[BAD, END, 1], [GOOD, FILM, END]]
    assert mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert ids.dtype == mask.dtype == np.int64


def test_without_a_mask_a_batch_holds_one_length_only() -> None:
    found = feeds(encoder(IDS), 4, "good", "good film", "bad", "film", "bad film")
    assert [rows for rows, _ in found] == [(0, 2, 3), (1, 4)]
    assert all(list(arrays) == ["input_ids"] for _, arrays in found)


def test_every_text_is_in_exactly_one_batch_of_the_size_asked_for() -> None:
    values = ["good " * (i % 7 + 1) for i in range(50)]
    for specs in ((IDS, MASK), (IDS,)):
        batches = [rows for rows, _ in feeds(encoder(*specs), 8, *values)]
        assert sorted(row for rows in batches for row in rows) == list(range(50))
        assert max(map(len, batches)) == 8


def test_texts_are_cut_to_the_limit_of_the_model_and_keep_their_end_token() -> None:
    made = encoder(limit=3, cut_at=2)  # the model's limit counts, not the tokenizer's
    (long, exact) = made.encode(texts("good film bad bad", "good film"))
    assert (long.ids, long.cut) == ([GOOD, FILM, END], True)
    assert (exact.ids, exact.cut) == ([GOOD, FILM, END], False)
    assert made.limit == 3


def test_where_the_models_limit_is_unknown_the_tokenizers_counts() -> None:
    assert [len(t.ids) for t in encoder(cut_at=2).encode(texts("good film bad"))] == [2]
    assert [len(t.ids) for t in encoder().encode(texts("good " * 200))] == [201]
    assert encoder().limit is None


def test_a_fixed_shape_is_filled_up() -> None:
    shape = (2, 4)
    specs = [InputSpec(s.name, s.dtype, shape, s.role, s.upper) for s in (IDS, MASK)]
    found = feeds(encoder(*specs), 1, "good", "bad film", "film", "good film bad bad bad")
    assert [rows for rows, _ in found] == [(0, 2), (1, 3)]
    assert found[1][1]["input_ids"].tolist() == [[BAD, FILM, END, 0], [GOOD, FILM, BAD, END]]
    (only,) = feeds(encoder(*specs), 1, "good")
    assert only[0] == (0,)
    assert only[1]["input_ids"].tolist() == [[GOOD, END, 0, 0]] * 2


def test_token_types_are_given_in_the_type_that_is_asked_for() -> None:
    ((_, arrays),) = feeds(encoder(IDS, TYPES), 1, "good film")
    assert arrays["token_type_ids"].dtype == np.int32
    assert arrays["token_type_ids"].tolist() == [[0, 0, 0]]


def test_an_optional_input_is_left_to_its_default() -> None:
    depth = InputSpec("depth", "int64", (), optional=True)
    ((_, arrays),) = feeds(encoder(IDS, depth), 1, "good")
    assert list(arrays) == ["input_ids"]


def test_padding_of_the_tokenizer_itself_is_not_used_but_its_id_is() -> None:
    tokenizer = make_tokenizer()
    tokenizer.enable_padding(pad_id=4, length=10)
    made = TextEncoder(tokenizer, ModelInputs((IDS, MASK), {}))
    assert feeds(made, 2, "good film", "bad")[0][1]["input_ids"].tolist() == [
        [BAD, END, 4],
        [GOOD, FILM, END],
    ]


def test_padding_is_the_one_that_the_config_names_else_0(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path / "made", {"fp32": word_counter()}, labels=None)
    for config, pad_id in ((None, 0), ('{"pad_token_id": 4}', 4), ('{"pad_token_id": null}', 0)):
        if config is not None:
            (artifact.folder / "config.json").write_text(config)
        ((_, arrays),) = feeds(TextEncoder.load(artifact), 2, "good film", "bad")
        assert arrays["input_ids"].tolist()[0] == [BAD, END, pad_id]


@pytest.mark.parametrize(
    "specs",
    [
        (InputSpec("x", "float32", ("batch", "sequence", 8)),),
        (IDS, InputSpec("position_ids", "int64", ("batch", "sequence"), "ids", 24)),
        (IDS, InputSpec("mask", "float32", ("batch", 1, "sequence", "sequence"), "mask")),
        (MASK,),
    ],
)
def test_a_model_that_takes_something_else_is_refused(specs: Sequence[InputSpec]) -> None:
    with pytest.raises(BenchmarkError, match=f"cannot be fed with text: .*{specs[-1].name}"):
        encoder(*specs)


def test_a_text_without_tokens_is_refused_with_its_line(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.post_processor = None
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Replace(Regex(".*"), "")
    made = TextEncoder(tokenizer, ModelInputs((IDS, MASK), {}))
    with pytest.raises(BenchmarkError, match=r"d\.csv, line 2: no token in this text"):
        made.encode(texts("good"))


def test_an_artifact_without_a_tokenizer_or_with_a_broken_one_is_told(tmp_path: Path) -> None:
    bare = make_artifact(tmp_path / "bare", {"fp32": word_counter()}, tokenizer=False)
    with pytest.raises(BenchmarkError, match=r"bare has no tokenizer\.json, so it cannot read"):
        TextEncoder.load(bare)
    (bare.folder / "tokenizer.json").write_text("[]")
    with pytest.raises(BenchmarkError, match=r"tokenizer\.json cannot be read: "):
        TextEncoder.load(bare)


def test_the_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_artifact(tmp_path / "made", {"fp32": word_counter()})
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(BenchmarkError, match=r"pip install 'albert-export\[text\]'"):
        TextEncoder.load(made)
