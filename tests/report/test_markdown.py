from __future__ import annotations

import re

import pytest

from exporter.records import Check, Record
from exporter.report import render_html, render_markdown
from exporter.report.markdown import MAX_CHARACTERS
from tests.report.making import PHONE, evaluation, measurement, trio
from tests.report.test_page import HOSTILE, hostile_records


def tables(text: str) -> dict[str, list[list[str]]]:
    """Read the tables below each heading: rows of cells, the header first.

    Those of places stand below one of their own; the places are left out.
    """
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("### "):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            found.setdefault(heading, []).append(cells)
    return found


def test_tables_are_whole_and_hold_the_figures() -> None:
    records: list[Record] = [*trio(int8=0.5), *trio(int8=0.8, device=PHONE, run="b")]
    text = render_markdown([*records, evaluation("fp32", 910), evaluation("int8", 905)])
    assert text.startswith("## demo: measurements\n\n**int8: 0.90")
    found = tables(text)
    assert list(found) == [
        "Sizes",
        "Against the unshared baseline (below 1 is better)",
        "Latency",
        "Loading and memory",
        "Accuracy",
        "Devices",
    ]
    for rows in found.values():
        assert len({len(row) for row in rows}) == 1
    ratios = found["Against the unshared baseline (below 1 is better)"]
    cells = [row[2] for row in ratios if row[:2] == ["int8", "unshared fp32"]]
    assert cells == ["0.50×", "0.80×"]
    assert [row[0] for row in found["Accuracy"][2:]] == ["fp32", "int8"]


def test_a_place_stands_above_its_rows_and_not_in_each() -> None:
    text = render_markdown([*trio(int8=0.5), *trio(int8=0.8, device=PHONE, run="b")])
    latency = text.partition("### Latency\n")[2].partition("### Loading")[0]
    place = "#### Laptop, onnxruntime 1.27.0: batch 1, sequence 128, 1 thread; 2026-03-01"
    assert latency.splitlines()[:3] == ["", place, ""]
    assert latency.count("Laptop") == latency.count("Phone") == 1
    assert latency.count("| variant |") == 2


@pytest.mark.parametrize(
    ("variants", "heading"),
    [
        (("baseline", "int8"), "the unshared baseline"),
        (("fp32", "int8"), "fp32"),
        (("baseline-int8", "fp32", "int8"), "each other"),
    ],
)
def test_ratios_are_headed_by_what_they_compare_with(
    variants: tuple[str, ...], heading: str
) -> None:
    records = [measurement(variant, [4.0] * 4) for variant in variants]
    assert f"### Against {heading} (below 1 is better)" in render_markdown(records)
    assert f"<h2>Against {heading}</h2>" in render_html(records)


def test_the_outputs_of_what_leaves_early_are_those_of_the_file() -> None:
    unchecked = Check(status="not run")
    early = measurement("int8-exit", [2.0] * 4, content="int8", check=unchecked)
    latency = tables(render_markdown([measurement("int8", [4.0] * 4), early]))["Latency"]
    outputs = latency[0].index("outputs")
    assert [row[outputs] for row in latency[2:]] == ["passed (1.0e-03)", "as int8"]
    both = [measurement("int8", [4.0] * 4, check=unchecked), early]
    assert [row[outputs] for row in tables(render_markdown(both))["Latency"][2:]] == ["not run"] * 2


def test_losses_failures_and_commands_are_listed() -> None:
    text = render_markdown(
        [*trio(int8=1.5), measurement("int4", status="failed", error="killed")], command="x --y"
    )
    assert "### Where it loses" in text
    assert "- **failed** demo int4 on Laptop, onnxruntime 1.27.0" in text
    assert "- `albert-export bench demo --out results.jsonl`" in text
    assert "- `x --y`" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_devices_is_neither_markup_nor_a_mention(text: str) -> None:
    for line in render_markdown(hostile_records(text), command=text).splitlines():
        outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line.replace("\\|", ""))
        assert not re.search(r"[<>@]|www\.|&|\{\{", outside), line
    rows = tables(render_markdown(hostile_records(text)))
    for table in rows.values():
        assert len({len(row) for row in table}) == 1


def test_a_long_report_is_cut_to_what_a_comment_holds_and_says_so() -> None:
    records = [m for i in range(150) for m in trio(run=f"run {i}", sequence=i + 1)]
    text = render_markdown(records)
    assert len(text) <= MAX_CHARACTERS
    assert re.search(r"\d+ more rows are left out here\.", text)
    short = render_markdown(records[:6])
    assert "left out here" not in short
