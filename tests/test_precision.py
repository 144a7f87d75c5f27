from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from exporter.errors import ExportError
from exporter.precision import (
    INT4_RUNS,
    MAIN_PRECISIONS,
    OPERATORS,
    PRECISIONS,
    TARGETS,
    TRANSFORMERS_JS_FILES,
    Float16,
    Int4,
    Int8,
    Keep,
    Precision,
    Rule,
    choose_precisions,
    find_precision,
)


def test_files_have_the_names_that_transformers_js_asks_for() -> None:
    names = {precision.name: precision.file_name for precision in PRECISIONS}
    assert names["fp32"] == "model.onnx"
    assert names["fp16"] == "model_fp16.onnx"
    assert names["int8"] == "model_quantized.onnx"
    assert names["int8-full"] == "model_int8.onnx"
    assert names["int8-unsigned"] == "model_uint8.onnx"
    assert names["int4-int8"] == names["int4-float"] == "model_q4.onnx"
    assert {find_precision("int4", target).file_name for target in TARGETS} == {"model_q4.onnx"}
    assert len(set(TRANSFORMERS_JS_FILES.values())) == len(TRANSFORMERS_JS_FILES) == 8


def test_names_are_unique_and_every_rule_says_why() -> None:
    assert len({precision.name for precision in PRECISIONS}) == len(PRECISIONS)
    for precision in PRECISIONS:
        assert precision.summary
        assert precision.dtype in TRANSFORMERS_JS_FILES
        assert all(rule.why and rule.operators <= OPERATORS for rule in precision.rules)


def test_the_default_of_each_format_is_the_safe_one() -> None:
    assert Int8() == Int8("int8", per_channel=True)
    assert Int4() == Int4(block=32, symmetric=True, scales="float16", run="float")
    assert find_precision("int8").rules[0].store == Int8()


def test_each_way_to_run_int4_is_a_precision() -> None:
    runs = {
        rule.store.run
        for precision in PRECISIONS
        for rule in precision.rules
        if isinstance(rule.store, Int4)
    }
    assert runs == {"float", "int8", "matmul_nbits", "dequantize"}


def test_an_unknown_precision_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ExportError, match=r"'int9'; choose from all, int4, fp32, fp16, int8, "):
        find_precision("int9")


def test_int4_is_the_form_that_suits_the_target() -> None:
    assert set(INT4_RUNS) == set(TARGETS)
    for target in TARGETS:
        int4 = find_precision("int4", target)
        assert int4.name == "int4"
        assert int4.rules[0].store == Int4(run=INT4_RUNS[target])
        assert [int4.rules] == [
            precision.rules
            for precision in PRECISIONS
            if precision.name.startswith("int4-")
            and [getattr(rule.store, "run", None) for rule in precision.rules]
            == [INT4_RUNS[target]]
        ]


def test_tolerances_grow_as_bits_go() -> None:
    fp32, fp16, int8, int4 = (find_precision(name).tolerance for name in MAIN_PRECISIONS)
    assert 0 < fp32 < fp16 < int8 < int4 < 1


def test_names_are_asked_for_with_commas_and_each_counts_once() -> None:
    asked = ["int4, fp16", " int8 ,", "fp16"]
    assert [precision.name for precision in choose_precisions(asked)] == ["int4", "fp16", "int8"]
    every = choose_precisions(["int8", "all", "int4-float"])
    assert [p.name for p in every] == ["int8", "fp32", "fp16", "int4", "int4-float"]
    run = choose_precisions(["all"], "phone")[-1].rules[0].store
    assert run == Int4(run=INT4_RUNS["phone"])


@pytest.mark.parametrize("asked", [[], [""], [" , "]])
def test_no_precision_at_all_is_an_error(asked: list[str]) -> None:
    with pytest.raises(ExportError, match="no precision is asked for; try fp32, int8 or all"):
        choose_precisions(asked)


@pytest.mark.parametrize("block", [0, 8, 24, 512])
def test_a_block_size_that_runtimes_do_not_take_is_an_error(block: int) -> None:
    with pytest.raises(ExportError, match=f"block size {block}: choose 16, 32"):
        Int4(block=block)


def test_precisions_are_frozen() -> None:
    for thing in (find_precision("int4"), Int4(), Int8(), Float16(), Keep("x")):
        field = dataclasses.fields(thing)[0].name if dataclasses.fields(thing) else "name"
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, field, 1)


def test_keeping_adds_patterns_to_a_copy() -> None:
    int8 = find_precision("int8")
    kept = int8.keeping("*.classifier.*", "head*", why="small").keeping("last")
    assert [(keep.pattern, keep.why) for keep in kept.keep] == [
        ("*.classifier.*", "small"),
        ("head*", "small"),
        ("last", "asked for"),
    ]
    assert int8.keep == ()
    assert kept.rules == int8.rules


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.classifier.*", "model.classifier.weight", True),
        ("*.classifier.*", "model.Classifier.weight", False),
        ("classifier", "classifier.weight", False),
        ("layer.[0-2].*", "layer.1.ffn", True),
        ("layer.[0-2].*", "layer.3.ffn", False),
    ],
)
def test_patterns_are_those_of_a_shell(pattern: str, name: str, matches: bool) -> None:
    assert Keep(pattern).matches(name) is matches


def test_plain_values_say_what_is_stored_how_and_why() -> None:
    precision = Precision(
        "mine", "q4", "a try", 0.25, (Rule(Int4(block=64), "small", frozenset({"Gather"})),)
    ).keeping("head")
    assert json.loads(json.dumps(precision.to_dict())) == {
        "name": "mine",
        "dtype": "q4",
        "summary": "a try",
        "tolerance": 0.25,
        "rules": [
            {
                "store": "int4",
                "block": 64,
                "symmetric": True,
                "scales": "float16",
                "run": "float",
                "operators": ["Gather"],
                "why": "small",
            }
        ],
        "keep": [{"pattern": "head", "why": "asked for"}],
    }


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, exporter.precision; "
        "print([m for m in ('torch', 'onnx', 'onnx_ir', 'onnxruntime', 'numpy', "
        "'exporter.passes') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
