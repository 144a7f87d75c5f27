"""The results of ``fusions.py`` as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.layout.table import PLACES, circumstances, doubts, shown_ratio

__all__ = ["document"]


def document(results: Mapping[str, Any]) -> str:
    """Return ``fusions.md``."""
    lines = [
        "# Fusions inside the block",
        "",
        "ALBERT-base, float32, rolled, exported with `--no-fuse` and then rewritten. "
        f"{circumstances(results)} Every figure but the error is this variant divided by the file "
        "as exported, with the 95 % interval over processes. Error: root mean square of the "
        "difference to PyTorch's outputs, in proportion to them. Variants of which onnxruntime "
        "makes the same operators are measured once, under the first's name.",
        "",
        "    python -m benchmarks.layout.fusions",
        *(line for runtime in PLACES for line in _section(results, runtime)),
        "",
        "Memory on the CPU: what loading and a run at the longer length add. In WebAssembly: the "
        "heap after them.",
        *doubts(results),
        "",
        "## What onnxruntime makes of each block when it loads it",
        "",
        "| variant | nodes as written | nodes that run | fused by onnxruntime | measured as |",
        "|---|--:|--:|---|---|",
        *_blocks(results),
    ]
    return "\n".join(lines) + "\n"


def _section(results: Mapping[str, Any], runtime: str) -> Iterator[str]:
    rows = [row for row in results["rows"] if row["runtime"] == runtime]
    lengths = dict.fromkeys(record["sequence"] for record in results["records"])
    times = zip(lengths, rows[0]["median_ms"], strict=True)
    yield from ("", f"## {PLACES[runtime]}", "")
    yield (
        "As exported: " + ", ".join(f"{ms:.0f} ms at sequence {length}" for length, ms in times)
    ) + "."
    yield ""
    runs = " | ".join(f"run, sequence {length}" for length in lengths)
    yield f"| variant | {runs} | load | memory | error |"
    yield "|---|" + "--:|" * (len(lengths) + 3)
    for row in rows:
        ratios = (*row["run"], row["load"], row["memory"])
        cells = ["1" if row is rows[0] else shown_ratio(ratio) for ratio in ratios]
        yield f"| {row['variant']} | {' | '.join(cells)} | {row['relative_error']:.1e} |"


def _blocks(results: Mapping[str, Any]) -> Iterator[str]:
    for name, written in results["block_operators"].items():
        running = results["block_operators_after_onnxruntime"][name]
        fused = {
            operator: count - written.get(operator, 0)
            for operator, count in running.items()
            if operator.startswith("com.microsoft") and count > written.get(operator, 0)
        }
        text = ", ".join(f"{count} × {operator}" for operator, count in fused.items()) or "nothing"
        nodes = f"{sum(written.values())} | {sum(running.values())}"
        yield f"| {name} | {nodes} | {text} | {results['measured_as'][name]} |"
