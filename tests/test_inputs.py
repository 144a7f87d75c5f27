from __future__ import annotations

import json

import numpy as np
import pytest

from exporter.errors import ExportError
from exporter.inputs import Feeds, InputSpec, ModelInputs, verification_cases
from tests.samples import ids_inputs

INPUTS = ids_inputs(100, 64)


def shapes(inputs: ModelInputs) -> dict[str, tuple[int, ...]]:
    first = inputs.specs[0].name
    return {case.name: case.feeds[first].shape for case in verification_cases(inputs)}


def row_lengths(feeds: Feeds) -> list[int]:
    mask = feeds["attention_mask"]
    lengths = mask.sum(axis=1).tolist()
    for row, length in zip(mask, lengths, strict=True):  # padding follows the tokens
        assert row.tolist() == [1] * length + [0] * (len(row) - length)
    return lengths


def test_inputs_read_back_from_their_json() -> None:
    inputs = ModelInputs((*INPUTS.specs, InputSpec("x", "float32", (1, "n", 3))), {"n": 5})
    values = inputs.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert ModelInputs.from_dict(values) == inputs


def test_symbols_come_in_order_of_appearance_with_their_limits() -> None:
    inputs = ModelInputs((*INPUTS.specs, InputSpec("x", "float32", ("n", "batch"))), {"n": 5})
    assert inputs.symbols == ("batch", "sequence", "n")
    assert (inputs.limit("n"), inputs.limit("sequence")) == (5, 128)


def test_the_same_seed_draws_the_same_arrays_and_another_seed_others() -> None:
    sizes = {"batch": 3, "sequence": 8}
    one, same, other = (INPUTS.draw(sizes, seed=seed)["input_ids"] for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_drawn_arrays_have_the_types_and_ranges_of_the_inputs() -> None:
    specs = (
        InputSpec("ids", "int64", ("batch", "sequence"), "ids", upper=3),
        InputSpec("flag", "bool", ("batch",)),
        InputSpec("mask", "float32", ("batch", "sequence"), "mask"),
        InputSpec("image", "float16", (1, 2, 3)),
    )
    feeds = ModelInputs(specs, {}).draw({"batch": 9, "sequence": 11})
    assert set(np.unique(feeds["ids"])) == {0, 1, 2}
    assert (feeds["ids"].dtype, feeds["ids"].shape) == (np.int64, (9, 11))
    assert (feeds["flag"].dtype, feeds["flag"].shape) == (np.bool_, (9,))
    assert feeds["mask"].tolist() == [[1.0] * 11] * 9
    assert (feeds["image"].dtype, feeds["image"].shape) == (np.float16, (1, 2, 3))
    assert np.unique(feeds["image"]).size > 1


def test_lengths_pad_the_rows_of_the_mask_alone() -> None:
    sizes = {"batch": 3, "sequence": 5}
    padded, full = INPUTS.draw(sizes, lengths=[5, 2, 0]), INPUTS.draw(sizes)
    assert row_lengths(padded) == [5, 2, 0]
    assert row_lengths(full) == [5, 5, 5]
    assert np.array_equal(padded["input_ids"], full["input_ids"])


def test_lengths_pad_the_last_axis_whatever_the_rank_and_the_number_of_rows() -> None:
    specs = (
        InputSpec("wide", "bool", ("batch", 1, 1, "sequence"), "mask"),
        InputSpec("flat", "int64", ("sequence",), "mask"),
        InputSpec("one", "int64", (1, "sequence"), "mask"),
    )
    feeds = ModelInputs(specs, {}).draw({"batch": 2, "sequence": 4}, lengths=[3, 1])
    assert feeds["wide"].astype(int).tolist() == [[[[1, 1, 1, 0]]], [[[1, 0, 0, 0]]]]
    assert feeds["flat"].tolist() == [1, 1, 1, 0]
    assert feeds["one"].tolist() == [[1, 1, 1, 0]]


def test_the_standard_cases_are_short_long_padded_and_random() -> None:
    cases = {case.name: case.feeds for case in verification_cases(INPUTS)}
    sizes = shapes(INPUTS)
    assert sizes["1x1"] == (1, 1)
    assert sizes["3x8"] == (3, 8)
    assert sizes["1x17"] == (1, 17)
    assert sizes["maximum length"] == (1, 64)
    assert sizes["padded"] == (3, 16)
    assert row_lengths(cases["padded"]) == [16, 9, 1]
    assert sizes["all-padding row"] == (3, 8)
    assert row_lengths(cases["all-padding row"]) == [8, 4, 0]
    random = [name for name in sizes if name.startswith("random ")]
    assert len(random) == 3
    for name in random:
        assert name.partition(": ")[2] == "{}x{}".format(*sizes[name])
        assert all(length >= 1 for length in row_lengths(cases[name]))
    for feeds in cases.values():
        INPUTS.check(feeds)


def test_the_standard_cases_are_the_same_each_time() -> None:
    for one, other in zip(verification_cases(INPUTS), verification_cases(INPUTS), strict=True):
        assert one.name == other.name
        for name, array in one.feeds.items():
            assert np.array_equal(array, other.feeds[name])


@pytest.mark.parametrize("limit", [1, 3, 8, 16])
def test_a_short_limit_keeps_the_padded_cases_and_drops_what_its_name_cannot_hold(
    limit: int,
) -> None:
    inputs = ids_inputs(100, limit)
    cases = {case.name: case.feeds for case in verification_cases(inputs)}
    assert ("1x17" in cases, "3x8" in cases) == (False, limit >= 8)
    assert cases["maximum length"]["input_ids"].shape == (1, limit)
    assert row_lengths(cases["padded"])[0] == limit
    assert row_lengths(cases["all-padding row"])[2] == 0
    for feeds in cases.values():
        inputs.check(feeds)


def test_a_model_without_a_mask_has_no_padded_cases() -> None:
    inputs = ModelInputs(INPUTS.specs[:1], {"sequence": 64})
    names = [case.name for case in verification_cases(inputs)]
    assert names[:4] == ["1x1", "3x8", "1x17", "maximum length"]
    assert all(name.startswith("random") for name in names[4:])
    assert len(names) == 7


def test_fixed_shapes_give_three_draws_and_the_padded_ones() -> None:
    specs = (
        InputSpec("input_ids", "int64", (2, 6), "ids", 100),
        InputSpec("attention_mask", "int64", (2, 6), "mask"),
    )
    cases = {case.name: case.feeds for case in verification_cases(ModelInputs(specs, {}))}
    assert list(cases) == ["draw 0", "draw 1", "draw 2", "padded", "all-padding row"]
    assert not np.array_equal(cases["draw 0"]["input_ids"], cases["draw 1"]["input_ids"])
    assert row_lengths(cases["draw 0"]) == [6, 6]
    assert row_lengths(cases["padded"]) == [3, 3]
    assert row_lengths(cases["all-padding row"]) == [6, 0]
    bare = verification_cases(ModelInputs(specs[:1], {}))
    assert [case.name for case in bare] == ["draw 0", "draw 1", "draw 2"]


def test_a_fixed_batch_of_one_still_meets_padding() -> None:
    specs = (
        InputSpec("input_ids", "int64", (1, "sequence"), "ids", 100),
        InputSpec("attention_mask", "int64", (1, "sequence"), "mask"),
    )
    inputs = ModelInputs(specs, {"sequence": 64})
    cases = {case.name: case.feeds for case in verification_cases(inputs)}
    assert cases["padded"]["attention_mask"].tolist() == [[1] + [0] * 15]
    assert cases["all-padding row"]["attention_mask"].tolist() == [[0] * 8]
    for feeds in cases.values():
        inputs.check(feeds)


def test_a_limit_on_the_batch_is_kept_and_the_padded_rows_stay() -> None:
    inputs = ModelInputs(INPUTS.specs, {"sequence": 64, "batch": 2})
    cases = {case.name: case.feeds for case in verification_cases(inputs)}
    assert max(feeds["input_ids"].shape[0] for feeds in cases.values()) == 2
    assert row_lengths(cases["all-padding row"]) == [4, 0]


IDS = np.array([[1, 2]])
MASK = np.ones((1, 2), np.int64)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"input_ids": IDS}, "input 'attention_mask' is missing; it takes: input_ids, attention"),
        (
            {"input_ids": IDS, "attention_mask": MASK, "labels": IDS},
            "input 'labels' is not an input of this model; it takes: input_ids, attention_mask",
        ),
        (
            {"input_ids": IDS.astype(np.int32), "attention_mask": MASK},
            "input 'input_ids' must be int64, not int32",
        ),
        (
            {"input_ids": IDS[0], "attention_mask": MASK},
            "input 'input_ids' must have 2 dimensions, not 1",
        ),
        (
            {"input_ids": IDS * 50, "attention_mask": MASK},
            "input 'input_ids' holds id 100, outside the valid range 0 to 99",
        ),
        (
            {"input_ids": -IDS, "attention_mask": MASK},
            "input 'input_ids' holds id -2, outside the valid range 0 to 99",
        ),
        (
            {"input_ids": np.zeros((1, 65), np.int64), "attention_mask": MASK},
            "input 'input_ids' has sequence 65, beyond the model's maximum 64",
        ),
        (
            {"input_ids": IDS, "attention_mask": np.ones((1, 3), np.int64)},
            "input 'attention_mask' has sequence 3, but another input has 2",
        ),
    ],
)
def test_feeds_that_do_not_fit_are_refused_in_one_line(feeds: Feeds, message: str) -> None:
    with pytest.raises(ExportError) as raised:
        INPUTS.check(feeds)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_fixed_size_and_an_unbounded_id_are_checked_too() -> None:
    inputs = ModelInputs(
        (InputSpec("x", "float32", (2, "n")), InputSpec("i", "int64", ("n",), "ids")), {}
    )
    good = {"x": np.zeros((2, 3), np.float32), "i": np.array([0, 10**12, 5])}
    inputs.check(good)
    with pytest.raises(ExportError, match="input 'x' has size 3 where 2 is fixed"):
        inputs.check(good | {"x": np.zeros((3, 3), np.float32)})
    with pytest.raises(ExportError, match="holds id -1, outside the valid range 0 or more"):
        inputs.check(good | {"i": np.array([0, -1, 5])})


def test_feeds_at_the_limit_pass() -> None:
    full = {
        "input_ids": np.full((1, 64), 99, np.int64),
        "attention_mask": np.ones((1, 64), np.int64),
    }
    INPUTS.check(full)
    INPUTS.check({name: array[:, :0] for name, array in full.items()})
