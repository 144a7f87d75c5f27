"""The results of ``run.py`` as Markdown.

    python -m benchmarks.layout.table

Writes ``results.md`` again from ``results.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["ORDER", "PLACES", "circumstances", "document", "doubts", "shown_ratio"]

PLACES = {"cpu": "CPU", "node": "WebAssembly (Node)"}
_NAMES = {
    "load_ms": ("session load ms", 1.0),
    "first_ms": ("first run ms", 1.0),
    "run_ms": ("run ms", 1.0),
    "added_bytes": ("added memory MB", 1e6),
    "heap_bytes": ("WebAssembly heap MB", 1e6),
}
ORDER = tuple(_NAMES)
"""Figures in the order of the table."""


def document(results: Mapping[str, Any]) -> str:
    """Return ``results.md``."""
    sizes = ", ".join(f"{name} {size:,} bytes" for name, size in results["file_bytes"].items())
    lines = [
        "# Rolled against unrolled",
        "",
        "ALBERT-base, float32, every parameter random; the same weights in both files: "
        f"{sizes}. {circumstances(results)}",
        "",
        "    python -m benchmarks.layout.run",
        "",
        "| runtime | figure | unrolled | rolled | rolled ÷ unrolled | loses |",
        "|---|---|--:|--:|--:|---|",
        *(_line(row) for row in results["figures"]),
        "",
        "Medians; of ratios the 95 % interval over processes, and a layout loses where it lies "
        "beyond 1. Load: creating the session from a file that the system has in memory, once "
        "the runtime has started. Added memory: growth of the resident memory by loading and the "
        "first run.",
        *doubts(results),
    ]
    return "\n".join(lines) + "\n"


def circumstances(results: Mapping[str, Any]) -> str:
    """Tell where and how it was measured."""
    device = results["device"]
    engines = "; ".join(dict.fromkeys(record["engine"] for record in results["records"]))
    return (
        f"Measured on {results['created']}: {device['cpu']}, {device['cores']} cores, "
        f"{device['system']}; {engines}. One thread, batch 1. The files take turns run by run, "
        f"each in a process of its own, {results['sessions']} fresh processes of each and at "
        f"least {results['min_runs']} runs at each sequence length."
    )


def shown_ratio(ratio: Sequence[float]) -> str:
    """Write value and interval."""
    return "{:.2f} ({:.2f}–{:.2f})".format(*ratio)


def _line(row: Mapping[str, Any]) -> str:
    name, scale = _NAMES[row["figure"]]
    name += f", sequence {row['sequence']}" if row["sequence"] else ""
    _, low, high = row["ratio"]
    loser = "**rolled**" if low > 1 else "unrolled" if high < 1 else "neither"
    values = " | ".join(f"{row[layout] / scale:,.0f}" for layout in ("unrolled", "rolled"))
    return (
        f"| {PLACES[row['runtime']]} | {name} | {values} | {shown_ratio(row['ratio'])} | {loser} |"
    )


def doubts(results: Mapping[str, Any]) -> list[str]:
    """Tell what makes figures doubtful, and what else a person should know."""
    flagged = [
        f"{PLACES[record['runtime']]}, {record['file']}, sequence {record['sequence']}: "
        f"{', '.join(record['flags'])}"
        for record in results["records"]
        if record["flags"]
    ]
    items = [f"- {text}." for text in (*flagged, *results["notices"])]
    return ["", "Doubtful:", "", *items] if items else []


def main() -> None:
    """Write the table again."""
    here = Path(__file__).parent
    results = json.loads((here / "results.json").read_text(encoding="utf-8"))
    (here / "results.md").write_text(document(results), encoding="utf-8")


if __name__ == "__main__":
    main()
