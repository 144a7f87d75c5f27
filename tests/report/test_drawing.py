from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.report.charts import latency_chart, load_chart
from exporter.report.drawing import Chart, Dot, Line, Rect, linear_axis, log_axis
from exporter.report.figures import settings_of
from exporter.report.naming import DeviceNames
from exporter.report.ratio_charts import ratio_charts
from exporter.report.text import milliseconds, ratio, size
from tests.report.making import PHONE, measurement, trio


@given(st.floats(1e-6, 1e12))
def test_a_linear_axis_begins_at_zero_and_has_few_round_ticks(largest: float) -> None:
    axis = linear_axis(largest, size)
    assert axis.place(0) == 0 and axis.place(largest) == pytest.approx(100)
    assert axis.place(-1) == 0 and axis.place(largest * 2) == 100
    values = [value for value, _ in axis.ticks]
    assert 3 <= len(values) <= 6
    assert values[0] == 0 and values[-1] <= largest * (1 + 1e-9)


def test_tick_texts_have_no_idle_decimals() -> None:
    assert [text for _, text in linear_axis(9_310_000, size).ticks] == [
        "0",
        "2\xa0MB",
        "4\xa0MB",
        "6\xa0MB",
        "8\xa0MB",
    ]
    assert [text for _, text in linear_axis(2.2, milliseconds).ticks][1] == "0.5\xa0ms"
    assert [text for _, text in linear_axis(220, milliseconds).ticks][1] == "50\xa0ms"


@given(st.lists(st.floats(0.001, 1000), max_size=5))
def test_a_ratio_axis_holds_one_and_all_values(values: list[float]) -> None:
    axis = log_axis(values, ratio)
    assert 1.0 in [value for value, _ in axis.ticks]
    assert 2 <= len(axis.ticks) <= 8
    for value in [*values, 1.0]:
        assert 0 < axis.place(value) < 100
    assert axis.place(1.25) - axis.place(1) == pytest.approx(axis.place(1) - axis.place(0.8))


def test_no_time_at_all_still_makes_an_axis() -> None:
    assert linear_axis(0.0, milliseconds).place(0.0) == 0


def test_a_latency_row_draws_its_box_whiskers_median_and_samples() -> None:
    samples = [float(v) for v in range(10, 31)]  # median 20, quartiles 15 and 25
    records = [measurement("fp32", samples)]
    (setting,) = settings_of(records, DeviceNames(records))
    chart = latency_chart(setting)
    (box,) = [s for s in chart.shapes if isinstance(s, Rect)]
    place = chart.axis.place
    assert (box.x, box.x + box.width) == pytest.approx((place(15), place(25)))
    lines = {s.style: s for s in chart.shapes if isinstance(s, Line) and s.style != "grid"}
    assert (lines["model"].x1, lines["model"].x2) == pytest.approx((place(12), place(28)))
    assert lines["model median"].x1 == pytest.approx(place(20))
    assert [s.x for s in chart.shapes if isinstance(s, Dot)] == pytest.approx(
        [place(v) for v in samples]
    )
    grid = [s.x1 for s in chart.shapes if isinstance(s, Line) and s.style == "grid"]
    assert grid == [place(value) for value, _ in chart.axis.ticks]
    assert chart.summary == ["fp32: 20.0\xa0ms"]


def test_outliers_beyond_the_axis_are_not_drawn_at_its_end() -> None:
    records = [measurement("fp32", [10.0] * 20 + [500.0])]
    (setting,) = settings_of(records, DeviceNames(records))
    dots = [s for s in latency_chart(setting).shapes if isinstance(s, Dot)]
    assert len(dots) == 20


def test_phases_of_loading_follow_each_other() -> None:
    chart = load_chart("Laptop", {"fp32": [measurement()]}, {})
    bars = [s for s in chart.shapes if isinstance(s, Rect)]
    assert [bar.style for bar in bars] == ["phase1", "phase2", "phase3"]
    place = chart.axis.place
    assert [bar.x for bar in bars] == pytest.approx([0, place(50), place(70)])
    assert bars[-1].x + bars[-1].width == pytest.approx(100)
    assert chart.summary == ["fp32: 79.0\xa0ms"]


def drawn(chart: Chart) -> dict[str, tuple[str, float]]:
    """Style and place of each row's estimate."""
    labels = [text.text for text in chart.texts if text.style == "label"]
    dots = [shape for shape in chart.shapes if isinstance(shape, Dot)]
    return {name: (dot.style, dot.x) for name, dot in zip(labels, dots, strict=True)}


def test_ratios_are_drawn_per_place_and_worse_ones_look_it() -> None:
    records = [*trio(int8=1.5, fp32=0.5), *trio(device=PHONE, run="b")]
    charts = ratio_charts(settings_of(records, DeviceNames(records)))
    assert [(title, note) for title, note, _ in charts] == [
        (title, "to unshared fp32; batch 1, sequence 128, 1\xa0thread")
        for title in ("Laptop, onnxruntime 1.27.0", "Phone, WASM in Chrome 140")
    ]
    chart = charts[0][2]
    found, place = drawn(chart), chart.axis.place
    assert found["fp32"] == ("model estimate", pytest.approx(place(0.5)))
    assert found["int8"] == ("worse estimate", pytest.approx(place(1.5)))
    assert chart.axis == charts[1][2].axis


def test_ratios_of_several_workloads_of_a_place_are_drawn_per_model() -> None:
    records = [*trio(), *trio(run="b", sequence=16)]
    charts = ratio_charts(settings_of(records, DeviceNames(records)))
    assert [(title, note) for title, note, _ in charts] == [
        ("fp32", "to unshared fp32"),
        ("int8", "to unshared fp32"),
    ]
    assert list(drawn(charts[0][2])) == ["sequence 16", "sequence 128"]


def test_a_single_process_is_a_dot_without_a_line() -> None:
    records = trio()
    ((_, _, chart),) = ratio_charts(settings_of(records, DeviceNames(records)))
    assert not [s for s in chart.shapes if isinstance(s, Line) and "interval" in s.style]
    assert drawn(chart).keys() == {"fp32", "int8"}
    assert "(" not in chart.summary[1]


def test_a_wide_interval_does_not_squeeze_the_others() -> None:
    records = [
        measurement("baseline", [10.0] * 4, session_runs=(2, 2)),
        measurement("int8", [1.0, 1.0, 100.0, 100.0], session_runs=(2, 2)),
    ]
    ((_, _, chart),) = ratio_charts(settings_of(records, DeviceNames(records)))
    assert len(chart.axis.ticks) <= 5
    (line,) = [s for s in chart.shapes if isinstance(s, Line) and "interval" in s.style]
    assert (line.x1, line.x2) == (0, 100)  # it goes on beyond
    assert "(0.00–" in chart.summary[0]
