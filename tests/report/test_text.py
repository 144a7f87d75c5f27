from __future__ import annotations

import math
from typing import get_args

import pytest

from exporter.records import Flag
from exporter.report.text import (
    FLAGS,
    brief,
    clean,
    count,
    joined,
    milliseconds,
    ratio,
    share,
    size,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.50 ms"),
        (5.214, "5.21 ms"),
        (9.996, "10.0 ms"),
        (412.4, "412 ms"),
        (9_999.0, "9,999 ms"),
        (12_345.0, "12.3 s"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_times_have_three_digits_and_a_unit(value: float | None, text: str) -> None:
    assert milliseconds(value).replace("\xa0", " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(12, "12 bytes"), (2_500, "2.50 kB"), (862_000, "0.86 MB"), (46_730_000, "46.7 MB")],
)
def test_sizes_are_decimal(value: int, text: str) -> None:
    assert size(value).replace("\xa0", " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.7134, "0.71×"), (0.0926, "0.093×"), (10.84, "10.8×"), (1200.0, "1,200×"), (None, "–")],
)
def test_ratios_keep_two_digits_when_small(value: float | None, text: str) -> None:
    assert ratio(value) == text


def test_words_agree_in_number() -> None:
    assert [count(n, "device") for n in (0, 1, 2)] == [
        "0\xa0devices",
        "1\xa0device",
        "2\xa0devices",
    ]
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert share(0.9125) == "91.2\xa0%"
    assert brief("abcdef", 4) == "abc…"


def test_characters_that_reorder_hide_or_break_are_replaced() -> None:
    assert clean("a\u202eb\u2066c\u200bd\x1b[31m\ne\u2028f") == "a�b�c�d�[31m e f"
    assert clean("Kim’s Gerät 電話 × 2") == "Kim’s Gerät 電話 × 2"


def test_every_flag_of_the_schema_has_words() -> None:
    assert set(FLAGS) == set(get_args(Flag))
