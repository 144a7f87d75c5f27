"""What a report says about models that leave early."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.errors import BenchmarkError
from exporter.records import LayersUsed
from exporter.report import render_html, render_markdown
from exporter.report.exit_views import exit_charts, exit_table
from exporter.report.exits import read_exits
from tests.report.making import evaluation, measurement, model


def point(value: float, accuracy: float, layers: float, **changes: Any) -> dict[str, Any]:
    return {
        "value": value,
        "accuracy": accuracy,
        "accuracy_95": [accuracy - 0.03, accuracy + 0.03],
        "loss": 100 * (0.9 - accuracy),
        "mean_layers": layers,
        "p90_layers": 2 * layers,
        "relative_ms": layers / 6,
    } | changes


CURVE = [point(0.5, 0.85, 1), point(0.8, 0.897, 2.5), point(1.0, 0.9, 6)]
CALIBRATION = {"value": 0.8, "max_loss": 0.5, "data": "held-out.jsonl", "rows": 441, "curve": CURVE}


def manifest(**changes: Any) -> dict[str, Any]:
    fp32, int8 = (
        {"variant": v, "path": f"onnx/{v}.onnx", "file_bytes": 9} for v in ("fp32", "int8")
    )
    return {
        "early_exit": {
            "rule": "confidence", "input": "exit_threshold", "never": 1.0, "layers": 6,
        },
        "models": [fp32, int8 | {"calibration": CALIBRATION | changes}],
        "files": {f"onnx/{v}.onnx": {"sha256": model(v).sha256} for v in ("fp32", "int8")},
    }  # fmt: skip


def test_a_manifest_has_a_curve_for_each_model_that_was_calibrated() -> None:
    (curve,) = read_exits(manifest())
    assert (curve.name, curve.layers, curve.max_loss) == ("int8", 6, 0.5)
    assert curve.title == "int8, 441 rows of held-out.jsonl"
    assert [curve.label(p) for p in curve.points] == [
        "exit_threshold 0.5", "exit_threshold 0.8, chosen", "all 6 layers",
    ]  # fmt: skip
    (whole,) = read_exits(manifest(value=1.0))
    assert whole.label(whole.points[2]) == "all 6 layers, chosen"
    assert read_exits({"models": []}) == ()
    assert read_exits({**manifest(), "early_exit": None}) == ()


def test_the_charts_have_a_row_per_setting_and_mark_the_chosen_one() -> None:
    layers, rates = exit_charts(read_exits(manifest())[0])
    assert layers.summary == [
        "exit_threshold 0.5: 1.00", "exit_threshold 0.8, chosen: 2.50", "all 6 layers: 6.00",
    ]  # fmt: skip
    assert [text.split(": ")[1].replace("\xa0", " ") for text in rates.summary] == [
        "85.0 %",
        "89.7 %",
        "90.0 %",
    ]
    bars = [shape for shape in layers.shapes if getattr(shape, "width", 0)]
    assert [bar.style for bar in bars] == ["reference", "model", "reference"]
    assert [bar.width for bar in bars] == pytest.approx([100 / 6, 250 / 6, 100])  # type: ignore[union-attr]


def test_the_table_has_the_whole_curve() -> None:
    (group,) = exit_table(read_exits(manifest())).groups
    assert group.heading.endswith("at most 0.5 points were to be lost")
    assert [cell.text.replace("\xa0", " ") for cell in group.rows[1]] == [
        "exit_threshold 0.8, chosen", "89.7 %", "86.7–92.7 %", "+0.30", "2.50", "5", "0.42×",
    ]  # fmt: skip


def test_pages_and_markdown_show_it_where_there_is_one() -> None:
    records = [measurement("int8"), measurement("fp32")]
    page = render_html(records, manifests=[manifest()])
    assert "<h2>Leaving early</h2>" in page
    assert page.count("exit_threshold 0.8, chosen") >= 3
    text = render_markdown(records, manifests=[manifest()])
    assert "### Leaving early" in text and "| +0.30 |" in text
    assert "Leaving early" not in render_html(records)
    assert "Leaving early" not in render_markdown(records)


def test_accuracies_tell_the_layers_used_where_a_model_left_early() -> None:
    layers = LayersUsed(setting="exit_threshold", value=0.8, mean=2.5, p90=6, of=12)
    both = [evaluation("int8", 80), evaluation("int8-exit", 80, layers=layers)]
    text = render_markdown(both)
    assert "| 2.50, 6 of 12 |" in text and "| all |" in text
    assert "layers" not in render_markdown(both[:1])


def test_a_damaged_curve_is_one_clear_error() -> None:
    with pytest.raises(BenchmarkError, match="a manifest is incomplete: KeyError"):
        render_html([measurement()], manifests=[manifest(curve=[{"value": 1}])])
