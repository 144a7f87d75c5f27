from __future__ import annotations

import pytest

from exporter.models import SharingScheme

SAME_6, OWN_6 = [0] * 6, [0, 1, 2, 3, 4, 5]
SAME_7, OWN_7 = [0] * 7, [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "attention", "ffn"),
    [
        ("all", SAME_6, SAME_6),
        ("attention_only", SAME_6, OWN_6),
        ("ffn_only", OWN_6, SAME_6),
        ("grouped(3)", [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]),
        ("none", OWN_6, OWN_6),
        ("all", SAME_7, SAME_7),
        ("attention_only", SAME_7, OWN_7),
        ("ffn_only", OWN_7, SAME_7),
        ("grouped(3)", [0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 2, 2]),
        ("none", OWN_7, OWN_7),
    ],
)
def test_each_layer_uses_the_block_that_its_scheme_names(
    text: str, attention: list[int], ffn: list[int]
) -> None:
    scheme, depth = SharingScheme.parse(text), len(attention)
    assert [scheme.attention_block(i, depth) for i in range(depth)] == attention
    assert [scheme.ffn_block(i, depth) for i in range(depth)] == ffn


@pytest.mark.parametrize("text", ["all", "attention_only", "ffn_only", "grouped(12)", "none"])
def test_a_scheme_reads_back_from_its_own_text(text: str) -> None:
    assert str(SharingScheme.parse(f" {text}\n")) == text


def test_groups_of_one_and_of_the_depth_are_the_two_extremes() -> None:
    one, each = SharingScheme("grouped", 1), SharingScheme("grouped", 4)
    assert [one.ffn_block(i, 4) for i in range(4)] == [0, 0, 0, 0]
    assert [each.ffn_block(i, 4) for i in range(4)] == [0, 1, 2, 3]


def test_every_group_of_an_uneven_division_has_a_layer() -> None:
    for depth in range(1, 25):
        for groups in range(1, depth + 1):
            scheme = SharingScheme("grouped", groups)
            blocks = [scheme.attention_block(i, depth) for i in range(depth)]
            assert blocks == sorted(blocks)
            assert set(blocks) == set(range(groups))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("some", "unknown sharing scheme 'some'"),
        ("", "unknown sharing scheme ''"),
        ("grouped", "needs a group count"),
        ("grouped(0)", "needs a group count of at least 1"),
        ("grouped(-1)", "unknown sharing scheme"),
        ("grouped(3", "unknown sharing scheme"),
    ],
)
def test_a_text_that_is_no_scheme_is_refused_with_the_choices(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        SharingScheme.parse(text)


def test_a_group_count_without_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="'all' takes no group count"):
        SharingScheme("all", 3)


def test_a_layer_beyond_the_depth_and_more_groups_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="layer 6 is outside a depth of 6"):
        SharingScheme("all").attention_block(6, 6)
    with pytest.raises(ValueError, match="layer -1"):
        SharingScheme("all").ffn_block(-1, 6)
    with pytest.raises(ValueError, match="7 groups need at least as many layers, not 6"):
        SharingScheme("grouped", 7).ffn_block(0, 6)
