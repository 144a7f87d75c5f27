from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace

from exporter.errors import BenchmarkError
from exporter.records import Check, Device, Measurement, Memory, Record
from exporter.report import page, render_html
from tests.report.making import LAPTOP, PHONE, Node, evaluation, measurement, read_html, trio


def everything() -> list[Record]:
    rng = np.random.default_rng(5)
    records: list[Record] = []
    for device, run in ((LAPTOP, "a"), (PHONE, "b")):
        for variant in ("baseline", "fp32", "int8", "int4"):
            records.append(
                measurement(variant, rng.lognormal(2, 0.2, 31).tolist(), device=device, run=run)
            )
    records.append(measurement("fp16", status="failed", error="exit code -9", run="a"))
    return [*records, evaluation("fp32", 910), evaluation("int8", 905)]


@pytest.fixture(scope="module")
def document() -> Node:
    return read_html(render_html(everything(), command="albert-export report results.jsonl"))


def test_medians_and_percentiles_are_those_of_the_raw_samples(document: Node) -> None:
    checked = 0
    for record in everything():
        if not isinstance(record, Measurement) or record.status != "measured":
            continue
        name = {"baseline": "unshared fp32"}.get(record.case.variant, record.case.variant)
        bodies = document.all("tbody", data_run=record.run)
        rows = [row for body in bodies for row in body.all("tr") if row.all(data_key="median_ms")]
        (row,) = [row for row in rows if row.all("th")[0].text == name]
        shown = {
            cell.attributes["data-key"]: float(cell.attributes["data-value"])
            for cell in row.all("td")
            if "data-key" in cell.attributes
        }
        samples = record.samples_ms
        assert shown["median_ms"] == pytest.approx(np.median(samples), rel=1e-12)
        assert shown["p90_ms"] == pytest.approx(np.percentile(samples, 90), rel=1e-12)
        assert shown["min_ms"] == min(samples)
        assert shown["samples"] == 31
        cell = row.all("td", data_key="median_ms")[0]
        assert float(cell.text.split()[0]) == pytest.approx(np.median(samples), rel=0.005)
        checked += 1
    assert checked == 8


def test_nothing_is_fetched_and_nothing_runs(document: Node) -> None:
    tags = {node.tag for node in document.walk()}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "form", "image", "use"})
    for node in document.walk():
        assert not any(name.startswith("on") for name in node.attributes)
        assert node.attributes.get("href", "#").startswith("#")
        assert "src" not in node.attributes
    (style,) = document.all("style")
    assert "url(" not in style.text and "@import" not in style.text
    assert "prefers-color-scheme: dark" in style.text and "@media print" in style.text
    (policy,) = document.all("meta", http_equiv="Content-Security-Policy")
    assert policy.attributes["content"].startswith("default-src 'none'")


def test_every_link_leads_to_a_part_of_the_page(document: Node) -> None:
    ids = [node.attributes["id"] for node in document.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    links = [node.attributes["href"].removeprefix("#") for node in document.all("a")]
    assert links and set(links) <= set(ids)


def test_every_chart_has_a_caption_and_its_figures_in_words(document: Node) -> None:
    figures = document.all("figure")
    assert len(figures) == 1 + 2 + 2 + 2 + 2 + 2
    for figure in figures:
        (caption,) = figure.all("figcaption")
        (chart,) = figure.all("svg")
        assert caption.text.strip()
        assert chart.attributes["role"] == "img"
        values = [text.text for text in chart.all("text", class_="value")]
        assert values and all(value in chart.attributes["aria-label"] for value in values)


def test_tables_have_captions_and_scoped_headers(document: Node) -> None:
    tables = document.all("table")
    assert len(tables) == 6
    for table in tables:
        assert table.all("caption")[0].text
        headers = table.all("thead")[0].all("th")
        assert all(header.attributes["scope"] == "col" for header in headers)
        for row in table.all("tr"):
            cells = [c for c in row.children if isinstance(c, Node)]
            spans = sum(int(c.attributes.get("colspan", "1")) for c in cells)
            assert spans == len(headers)


def test_marks_lie_inside_the_chart_where_the_figures_say(document: Node) -> None:
    chart = document.all("figure")[0].all("svg")[0]
    bars = {
        bar.all("title")[0].text: float(bar.attributes["width"].removesuffix("%"))
        for bar in chart.all("rect")
        if bar.attributes["class"] in ("model", "reference")
    }
    assert bars == {
        "unshared fp32: 9,000,000 bytes": 100.0,
        "fp32: 3,000,000 bytes": pytest.approx(100 / 3, rel=1e-3),
        "int8: 900,000 bytes": pytest.approx(10),
        "int4: 500,000 bytes": pytest.approx(50 / 9, rel=1e-3),
        "fp16: 1,000,000 bytes": pytest.approx(100 / 9, rel=1e-3),
    }
    for node in document.walk():
        for name in ("x", "x1", "x2", "cx"):
            if name in node.attributes:
                assert 0 <= float(node.attributes[name].removesuffix("%")) <= 100


def test_no_two_texts_of_a_chart_share_a_line_and_a_side(document: Node) -> None:
    for chart in document.all("svg"):
        places = [
            (text.attributes["y"], text.attributes["x"], text.attributes["text-anchor"])
            for text in chart.all("text")
        ]
        assert len(places) == len(set(places))
        for text in chart.all("text"):
            assert float(text.attributes["y"]) < float(chart.attributes["height"])


def test_failed_cases_errors_and_commands_are_on_the_page(document: Node) -> None:
    warnings = document.all("section", id="warnings")[0].text
    assert "exit code -9" in warnings
    commands = [code.text for code in document.all("code")]
    assert commands == [
        "albert-export bench demo --out results.jsonl",
        "albert-export report results.jsonl",
    ]
    assert "Laptop" in document.all("section", id="devices")[0].text


def test_a_failed_baseline_is_a_row_of_the_charts_too() -> None:
    records = trio(device=PHONE)
    records[0] = measurement(
        "baseline", status="failed", error="x", flags=("likely out of memory",), device=PHONE
    )
    charts = [s for f in read_html(render_html(records)).all("figure") for s in f.all("svg")]
    notes = [s for s in charts if "unshared fp32: out of memory?" in s.attributes["aria-label"]]
    assert len(notes) == 3  # latency, loading, memory


def test_wrong_outputs_are_marked_where_their_times_are() -> None:
    records = trio()
    wrong = Check(status="failed", relative_error=1.0, tolerance=0.1)
    records[2] = measurement("int8", records[2].samples_ms, check=wrong)
    marked = read_html(render_html(records)).all("text", class_="worse")
    assert [text.text.split("\xa0")[-1] for text in marked] == [
        "0.50×, outputs wrong",
        "ms · outputs wrong",
    ]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title></svg>{{ 7*7 }}{% raw %}",
    "&lt;b&gt; & <b>",
    "\u202egnp.exe\u2066 \u200f\x00\x1b[2J",
    "]]> --> <!-- `|*_~ @someone www.example.com",
]


def hostile_records(text: str) -> list[Record]:
    label = text[:200]
    device = Device(
        label=label,
        cpu=label,
        system=label,
        engine=label,
        runtime=label,
        runtime_version=label,
        cpu_flags=(label,),
        user_agent=text,
    )
    records: list[Record] = []
    for variant in ("baseline", label, f"baseline-{label}"):
        records.append(
            measurement(
                variant,
                device=device,
                artifact=label,
                run=label,
                command=text,
                content=variant,
                flags=("spread",),
            )
        )
    records.append(
        measurement(f"{label}x", device=device, artifact=label, status="failed", error=text)
    )
    return [*records, evaluation(label, 900, data=label, command=text, reference=label)]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_devices_stays_text(text: str) -> None:
    html = render_html(hostile_records(text), command=text)
    harmless = read_html(render_html(hostile_records("harmless"), command="harmless"))
    document = read_html(html)
    assert [node.tag for node in document.walk()] == [node.tag for node in harmless.walk()]
    names = [sorted(node.attributes) for node in document.walk()]
    assert names == [sorted(node.attributes) for node in harmless.walk()]
    assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", html)
    assert document.all("code")[-1].text[:3] == text.replace("\u202e", "�")[:3]


def test_charts_show_the_newest_settings_and_tables_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_PANELS", 2)
    records = [m for day in range(1, 6) for m in trio(run=f"r{day}", day=f"2026-03-0{day}")]
    document = read_html(render_html(records))
    assert "the 2 newest of 5\xa0settings" in document.text
    shown = [f.all("figcaption")[0].text for f in document.all("figure")]
    latency = [text for text in shown if "batch 1" in text]
    assert [text.strip()[-10:] for text in latency] == ["2026-03-04", "2026-03-05"]
    assert len(document.all("td", data_key="median_ms")) == 15


def test_several_artifacts_are_parts_of_one_page() -> None:
    document = read_html(render_html([*trio(), *trio(artifact="albert-base", run="b")]))
    parts = [heading.text for heading in document.all("h2", class_="part")]
    assert parts == ["albert-base", "demo"]
    assert len(document.all("p", class_="lead")) == 2


def test_the_same_records_give_the_same_page() -> None:
    assert render_html(everything()) == render_html(everything())


def test_no_record_makes_no_page() -> None:
    with pytest.raises(BenchmarkError, match="there is no record"):
        render_html([])


def test_evaluations_alone_make_a_page() -> None:
    document = read_html(render_html([evaluation("fp32", 910), evaluation("int8", 905)]))
    (cell,) = [c for c in document.all("td", data_key="accuracy") if c.text.startswith("91")]
    assert float(cell.attributes["data-value"]) == 0.91


def test_the_last_evaluation_of_a_file_counts() -> None:
    first = evaluation("fp32", 900)
    later = replace(evaluation("fp32", 910), created="2026-03-02T09:00:00Z")
    for records in ([first, later], [later, first]):
        document = read_html(render_html(records))
        (cell,) = document.all("td", data_key="accuracy")
        assert cell.text == "91.0\xa0%"


def test_of_several_clocks_of_a_device_the_coarsest_is_shown() -> None:
    records = [
        measurement(device=replace(PHONE, timer_resolution_ms=step), run=f"{step}")
        for step in (0.005, 1.0, 0.1)
    ]
    document = read_html(render_html(records))
    (cell,) = document.all("td", data_key="timer_resolution_ms")
    assert cell.text == "1\xa0ms"


@pytest.mark.parametrize(
    ("step_ms", "text"),
    [(1e-6, "1\xa0ns"), (0.0003, "300\xa0ns"), (0.005, "5\xa0µs"), (20.0, "20\xa0ms")],
)
def test_a_clock_s_step_is_in_the_unit_that_fits(step_ms: float, text: str) -> None:
    device = replace(PHONE, timer_resolution_ms=step_ms)
    document = read_html(render_html([measurement(device=device)]))
    (cell,) = document.all("td", data_key="timer_resolution_ms")
    assert cell.text == text


def test_each_kind_of_memory_is_in_its_column() -> None:
    memory = Memory(added_rss=1_000_000, peak_rss=5_000_000, wasm_heap=3_000_000)
    document = read_html(render_html([measurement(memory=memory)]))
    for key, value in (("added_rss", "1000000"), ("peak_rss", "5000000"), ("wasm_heap", "3000000")):
        (cell,) = document.all("td", data_key=f"{key}_bytes")
        assert cell.attributes["data-value"] == value


def test_an_interval_that_was_not_computed_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.report.figures.MAX_BOOTSTRAPS", 0)
    document = read_html(render_html(trio()))
    (table,) = [t for t in document.all("table") if t.all("td", data_key="time_ratio")]
    rows = [row.text for row in table.all("tr") if row.all("td", data_key="time_ratio")]
    assert rows and all("0.50×–not known" in row for row in rows if row.startswith("int8"))
