"""Names of files, and one graph in several precisions."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from exporter.passes.weights.coverage import Coverage, LeftWeight
from exporter.pipeline.options import ExportOptions
from exporter.pipeline.variants import describe_missed, file_names, store_model
from exporter.precision import Float16, Int8, Precision, Rule, choose_precisions, find_precision
from tests.passes.helpers import build, op_types, stored_bytes
from tests.passes.quantize_helpers import noise, product, tied


def test_the_first_of_a_kind_has_the_name_of_transformers_js() -> None:
    chosen = choose_precisions(["int8-full,int8-reduced,int4,int4-float,int8"])
    assert file_names(chosen, "onnx") == {
        "int8-full": "onnx/model_int8.onnx",
        "int8-reduced": "onnx/model_int8-reduced.onnx",
        "int4": "onnx/model_q4.onnx",
        "int4-float": "onnx/model_int4-float.onnx",
        "int8": "onnx/model_quantized.onnx",
    }


@pytest.mark.parametrize("last", ["int8-reduced", ""])
@pytest.mark.parametrize("first", ["int8-reduced", ""])
def test_no_file_has_a_name_that_means_another_to_transformers_js(first: str, last: str) -> None:
    """A second file for ``q8`` is not called as the one for ``int8``."""
    names = file_names(choose_precisions([first, "int8-int4-tables", "int8", last]), "onnx")
    assert names["int8-int4-tables"] == "onnx/model_quantized.onnx"
    assert names["int8"] == "onnx/model_quantized_int8.onnx"
    assert len(set(names.values())) == len(names)
    if "int8-reduced" in names:
        assert names["int8-reduced"] == "onnx/model_int8.onnx"


def test_without_rules_the_graph_is_what_it_was() -> None:
    model = product(noise(32, 32))
    stored = store_model(model, find_precision("fp32"))
    assert stored.model is model
    assert (stored.coverage, stored.weights, stored.records, stored.notices) == (None, (), (), [])


def test_the_graph_given_is_not_changed() -> None:
    model = tied(noise(40, 32))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    stored = store_model(model, find_precision("int8"))
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert stored_bytes(stored.model) < stored_bytes(model) / 3
    assert [record.name for record in stored.records] == [
        "QuantizeToInt8Pass", "RemoveUnusedPass", "StripTypesPass",
    ]  # fmt: skip


def test_the_report_of_weights_has_the_error_of_each_and_who_uses_it() -> None:
    (weight,) = store_model(tied(noise(40, 32)), find_precision("int8")).weights_report()
    assert weight["weight"] == "w"
    assert weight["form"] == "int8, 40 scales, 2 uses"
    assert weight["saved_bytes"] == 3 * 40 * 32 - 4 * 40
    assert 0.001 < weight["relative_error"] < 0.01
    assert 0 < weight["largest_error"] < 0.05
    assert weight["operations"] == ["e", "y"]


def test_coverage_adds_up_over_rules_and_keeps_what_the_last_one_left() -> None:
    text = """main (int64[S] i, float[S, 64] x) => (float[S, 64] e, float[S, 64] y, float[S, 40] z)
        { e = Gather(t, i) y = MatMul(x, w) z = MatMul(x, head) }"""
    weights = {"t": noise(50, 64), "w": noise(64, 64, seed=1), "head": noise(64, 40, seed=2)}
    mixed = Precision(
        "mixed",
        "q8",
        "tables in float16",
        0.1,
        (Rule(Float16(), "rows", frozenset({"Gather"})), Rule(Int8(), "products")),
    ).keeping("head", "nobody")
    stored = store_model(build(text, weights), mixed)
    coverage = stored.coverage
    assert coverage is not None
    assert (coverage.operations_reached, coverage.operations_total) == (2, 3)
    assert coverage.bytes_reached == 4 * (50 + 64) * 64
    assert coverage.bytes_total == 4 * (50 + 64 + 40) * 64
    assert [(left.value, left.on_purpose) for left in coverage.skipped] == [("head", True)]
    assert coverage.is_full
    assert stored.notices == ["mixed: 'nobody' is to be kept and matches no weight"]
    assert op_types(stored.model).count("MatMulInteger") == 1


def test_a_graph_without_weights_to_store_is_not_silently_left_as_it_is() -> None:
    for first in ("int8", "fp16"):
        reduced = store_model(product(noise(32, 32)), find_precision(first)).model
        again = store_model(reduced, find_precision("int4"))
        assert again.notices == ["int4: no weight in float32 was found; nothing is smaller"]
        assert stored_bytes(again.model) == stored_bytes(reduced)


def test_the_largest_missed_weight_is_named_first() -> None:
    skipped = (
        LeftWeight("small", "is odd", 1_000),
        LeftWeight("kept", "asked for", 9_000, on_purpose=True),
        LeftWeight("large", "is a stack", 4_000),
    )
    coverage = Coverage(3, 6, 15_000, 29_000, skipped)
    assert describe_missed(coverage) == (
        "reaches 3 of 6 operations, 51.7% of the bytes of weights; not reached: "
        "large (4,000 bytes): is a stack; small (1,000 bytes): is odd"
    )
    assert not coverage.is_full


def test_options_change_tolerance_and_keep_of_what_is_reduced_alone() -> None:
    options = ExportOptions(precisions=("all",), keep=("head",), tolerances={"int8": 0.3})
    fp32, fp16, int8, int4 = options.chosen_precisions()
    assert (fp32.keep, fp32.tolerance) == ((), find_precision("fp32").tolerance)
    assert [keep.pattern for keep in fp16.keep] == ["head"]
    assert (int8.tolerance, int4.tolerance) == (0.3, find_precision("int4").tolerance)
