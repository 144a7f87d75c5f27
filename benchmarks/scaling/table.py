"""From the rows to Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["document"]

MB = 1e6
LAYOUTS = ("rolled", "unrolled", "unshared")
AXES = {
    "depth": "Depth: layers of width 256, 1×128",
    "width": "Width: 12 layers, 1×128",
    "sequence": "Sequence: 12 layers of width 256, batch 1",
    "batch": "Batch: 12 layers of width 256, sequence 128",
}
EXPORTED = ("depth", "width")
"""Axes along which the model differs, and not its input alone."""

Row = Mapping[str, Any]


def document(results: Mapping[str, Any]) -> str:
    """Return ``results.md``."""
    device, rows = results["device"], results["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [
        "# How size, export and speed grow",
        "",
        f"The reference encoder with random parameters, vocabulary 8,000; float32, one thread. "
        f"Measured on {results['created']}: {device['cpu']}, {device['cores']} cores, "
        f"{device['system']}. {versions}. Times of runs: `bench {results['bench_options']}`, "
        "the three files in turns; ratios to the rolled file with their 95 % interval. Export: "
        "the whole command, Python's start and verification included, once.",
        "",
        "    python -m benchmarks.scaling.run",
        "",
        "![the same as curves](results.svg)",
    ]
    for axis, title in AXES.items():
        chosen = [row for row in rows if row["axis"] == axis]
        if chosen:
            lines += ["", f"## {title}", "", *_table(axis, chosen)]
    return "\n".join(lines) + "\n"


def _table(axis: str, rows: Sequence[Row]) -> list[str]:
    columns = [axis, "layout"]
    if axis in EXPORTED:
        columns += ["file MB", "export s", "export peak MB", "load ms"]
    columns += ["added MB", "run ms", "÷ rolled"]
    lines = [f"| {' | '.join(columns)} |", "|--:|---|" + "--:|" * (len(columns) - 2)]
    order = sorted(rows, key=lambda row: (row["value"], LAYOUTS.index(row["layout"])))
    for row in order:
        cells = [str(row["value"]), row["layout"]]
        if axis in EXPORTED:
            cells += [
                f"{row['file_bytes'] / MB:.2f}",
                f"{row['export_s']:.1f}",
                f"{row['export_peak_bytes'] / MB:.0f}",
                f"{row['load_ms']:.0f}",
            ]
        cells += [
            f"{row['added_bytes'] / MB:.0f}",
            f"{row['median_ms']:.1f}",
            "{:.2f} ({:.2f}–{:.2f})".format(*row["ratio"]) if row["ratio"] else "1",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
