from __future__ import annotations

import pytest

from exporter.checkpoint.input_specs import parse_all, parse_input
from exporter.errors import CheckpointError
from exporter.inputs import InputSpec


def test_a_full_description_is_read() -> None:
    parsed = parse_input("input_ids:int64[batch,sequence<=512]<30000")
    shape = ("batch", "sequence")
    assert parsed.spec == InputSpec("input_ids", "int64", shape, "ids", 30_000)
    assert parsed.limits == {"sequence": 512}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("x:float32[2, n, 64]", InputSpec("x", "float32", (2, "n", 64))),
        ("tokens:int32[b,s]<9", InputSpec("tokens", "int32", ("b", "s"), "ids", 9)),
        ("my_mask:bool[b,s]", InputSpec("my_mask", "bool", ("b", "s"), "mask")),
        ("token_type_ids:int64[1,8]", InputSpec("token_type_ids", "int64", (1, 8), "ids")),
        ("counts:int64[n]", InputSpec("counts", "int64", ("n",))),
        ("scale:float32[]", InputSpec("scale", "float32", ())),
    ],
)
def test_types_sizes_and_roles_are_told_apart(text: str, spec: InputSpec) -> None:
    assert parse_input(text).spec == spec


def test_a_name_alone_has_no_description() -> None:
    parsed = parse_input(" input_ids ")
    assert (parsed.name, parsed.spec, parsed.limits) == ("input_ids", None, {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "wanted NAME"),
        ("input_ids:", "wanted NAME"),
        ("input ids", "wanted NAME"),
        ("x:int64[2", "wanted NAME"),
        ("x<5", "wanted NAME"),
        ("x:int63[2]", "unknown type 'int63'"),
        ("x:int64[batch,-1]", "'-1' is neither a size nor a name"),
        ("x:int64[0]", "'0' is neither"),
        ("x:int64[s<=0]", "'s<=0' is neither"),
        ("x:float32[2]<5", "for integer ids"),
        ("x:int64[2]<0", "at least 1"),
    ],
)
def test_what_cannot_be_read_is_shown_with_an_example(text: str, why: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_input(text)
    assert repr(text) in str(caught.value)
    assert why in str(caught.value)
    assert "input_ids:int64[batch,sequence<=512]<30000" in str(caught.value)


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(CheckpointError, match="x is given twice"):
        parse_all(["x:int64[2]", "y", "x"])
