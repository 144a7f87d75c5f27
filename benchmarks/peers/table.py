"""From results to Markdown: the tables, and where we lose.

    python -m benchmarks.peers.table

Writes ``results.md`` again from ``results.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.chains import OURS, PRECISIONS

__all__ = ["document"]

MB = 1e6
NEARLY_ALL = 0.9
Row = Mapping[str, Any]


def document(results: Mapping[str, Any]) -> str:
    """Return ``results.md``."""
    device, rows = results["device"], results["rows"]
    by_chain: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_chain.setdefault(row["chain"], {})[row["precision"]] = row
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [
        "# ALBERT-base by the tools that people use",
        "",
        f"Measured on {results['created']}: {device['cpu']}, {device['cores']} cores, "
        f"{device['system']}; instruction sets {', '.join(device['cpu_flags'])}. {versions}. "
        "What each tool's environment held is in `results.json`.",
        "",
        "    python -m benchmarks.peers.run",
        "",
        "ALBERT-base with every parameter random: 46.7 MB of different weights, 358 MB if each "
        "use had its own. MB are 10⁶ bytes of all files of a model. int8 and int4 of chains that "
        "end in float32 are those of onnxruntime's `quantize_dynamic` and of its `MatMulNBits` "
        "quantizer, products and lookups.",
        "",
        "## Bytes, coverage, parity",
        "",
        "| chain | fp32 MB | fp16 MB | int8 MB | int4 MB | reached by int8 | by int4 "
        "| error fp32 | int8 | int4 |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_sizes_line(chain, found) for chain, found in by_chain.items()),
        "",
        "Reached: weight operations (products and lookups) whose weight is stored in fewer bits "
        "than float32, of all; `albert-export inspect` counts them in ONNX files, in other "
        "formats products and lookups that read a stored tensor of at least 1,000 elements. A "
        "rolled file holds each layer once, so it has fewer. Error: root mean square of the "
        "difference to PyTorch in float32, in proportion to its outputs, the worse output of "
        "two, over 4 inputs of 1×128.",
        "",
        *_notes(rows),
        *_failures(rows),
    ]
    if any("median_ms" in row for row in rows):
        lines += ["## Time and memory", "", *_times(results, rows)]
    if any("browser" in row for row in rows):
        lines += ["## In Chromium", "", *_browser(rows)]
    lines += [
        "## Where we lose",
        "",
        "By more than 5 %, bytes by more than 0.1 %, latency where the interval lies below 1. "
        "Chains whose files lack an output of the model are left out, and of errors those that "
        "reach less than nine tenths of the weight operations.",
        "",
        *_losses(rows),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _sizes_line(chain: str, found: Mapping[str, Row]) -> str:
    cells = [chain]
    cells += [_cell(found, p, "file_bytes", lambda v: f"{v / MB:.2f}") for p in PRECISIONS]
    for precision in ("int8", "int4"):
        row = found.get(precision, {})
        known = row.get("operations") is not None
        cells.append(f"{row['reached']} of {row['operations']}" if known else "–")
    cells.append(_cell(found, "fp32", "relative_error", lambda v: f"{v:.0e}"))
    cells += [
        _cell(found, p, "relative_error", lambda v: f"{v:.1%}" if v < 100 else f"{v:.0e}")
        for p in ("int8", "int4")
    ]
    return "| " + " | ".join(cells) + " |"


def _cell(found: Mapping[str, Row], precision: str, key: str, form: Callable[[float], str]) -> str:
    row = found.get(precision)
    if row is None:
        return "–"
    value = row.get(key)
    return "fails" if value is None and row.get("error") else "–" if value is None else form(value)


def _notes(rows: Iterable[Row]) -> list[str]:
    lines = []
    seen: dict[str, None] = {}
    for row in rows:
        if row["note"]:
            seen[f"{row['chain']}: {row['note']}."] = None
        if row.get("missing"):
            names = ", ".join(row["missing"])
            seen[f"{row['chain']}: its files have no {names}, nor the weights of it."] = None
    lines += [f"- {text}" for text in seen]
    return [*lines, ""] if lines else []


def _failures(rows: Iterable[Row]) -> list[str]:
    failed = [row for row in rows if row.get("error")]
    if not failed:
        return []
    return [
        "What fails, in the tool's own words:",
        "",
        *(f"- {row['chain']}, {row['precision']}: `{_plain(row['error'])}`" for row in failed),
        "",
    ]


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "'").split())[:300]


def _times(results: Mapping[str, Any], rows: list[Row]) -> list[str]:
    lines = [
        "One thread, batch 1, sequence 128. All files of one precision ran in turns, A B C A B "
        f"C …, each in a process of its own, {results['sessions']} fresh processes of each; "
        "ratios to ours come from neighbouring runs, with the 95 % interval over processes. "
        "Load: creating the session from a file that the system has in memory. Added: resident "
        "memory by loading and the first run. Peak: of the whole process, Python included.",
        "",
        "| precision | chain | load ms | ÷ ours | run ms | ÷ ours | added MB | peak MB |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for precision in PRECISIONS:
        measured = [r for r in rows if r["precision"] == precision and "median_ms" in r]
        for row in sorted(measured, key=lambda r: (r["chain"] != OURS, r["median_ms"])):
            compared = row.get("ratio")
            cells = [
                precision,
                row["chain"],
                f"{row['load_ms']:.0f}",
                f"{row['load_ratio']:.2f}" if "load_ratio" in row else "1",
                f"{row['median_ms']:.0f}",
                "{:.2f} ({:.2f}–{:.2f})".format(*compared) if compared else "1",
                f"{row['added_bytes'] / MB:.0f}",
                f"{row['peak_bytes'] / MB:.0f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *(f"- {notice}" for notice in results["notices"]), ""]


def _browser(rows: Iterable[Row]) -> list[str]:
    lines = [
        "onnxruntime-web and LiteRT.js, one thread of WebAssembly, batch 1, sequence 128, each "
        "in a browser of its own, in turns.",
        "",
        "| precision | chain | engine | load ms | run ms | ÷ ours |",
        "|---|---|---|--:|--:|--:|",
    ]
    for row in rows:
        found = row.get("browser")
        if found is None:
            continue
        cells = [row["precision"], row["chain"]]
        if "median_ms" in found:
            compared = found.get("ratio")
            cells += [found["engine"], f"{found['load_ms']:.0f}", f"{found['median_ms']:.0f}"]
            cells.append("{:.2f} ({:.2f}–{:.2f})".format(*compared) if compared else "1")
        else:
            cells += [f"fails: `{_plain(found['error'])}`", "–", "–", "–"]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _losses(rows: list[Row]) -> list[str]:
    """Say, for each precision and figure, which chain is better than ours, and by how much."""
    sentences = []
    for precision in PRECISIONS:
        own = next((r for r in rows if r["chain"] == OURS and r["precision"] == precision), None)
        if own is None:
            continue
        # A file that lacks an output of the model is no file of the same model.
        others = [
            row
            for row in rows
            if row["precision"] == precision and not _is_ours(row) and not row.get("missing")
        ]
        parts = [_better(own, others, *figure) for figure in FIGURES]
        parts.append(_faster(others, "runs faster"))
        in_browser = [
            row["browser"] | {"chain": row["chain"]} for row in others if "browser" in row
        ]
        parts.append(_faster(in_browser, "runs faster in Chromium"))
        if "browser" in own:
            load = ("load_ms", "loads faster in Chromium", 0.95, lambda v: f"{v:.0f} ms")
            parts.append(_better(own["browser"], in_browser, *load))
        if found := [part for part in parts if part]:
            sentences.append(f"- **{precision}**: {'; '.join(found)}.")
    return sentences or ["In none of the figures above."]


def _reaches_all(row: Row) -> bool:
    """Whether nearly all weights are in fewer bits: else a small error is no merit."""
    reached, operations = row.get("reached"), row.get("operations")
    if row["precision"] == "fp32":
        return True
    if reached is None or operations is None:
        return False
    return bool(reached >= NEARLY_ALL * operations)


def _is_ours(row: Row) -> bool:
    return str(row["chain"]).startswith(OURS)


FIGURES: tuple[tuple[str, str, float, Callable[[float], str]], ...] = (
    ("file_bytes", "smaller files", 0.999, lambda v: f"{v / MB:.2f} MB"),
    ("relative_error", "smaller error", 0.95, lambda v: f"{v:.2g}"),
    ("load_ms", "loads faster", 0.95, lambda v: f"{v:.0f} ms"),
    ("added_bytes", "takes less memory", 0.95, lambda v: f"{v / MB:.0f} MB"),
)
"""Key, words, below which share of ours another is named, and the form of a value."""


def _better(
    own: Row,
    others: Sequence[Row],
    key: str,
    words: str,
    share: float,
    form: Callable[[float], str],
) -> str:
    if own.get(key) is None:
        return ""  # failed, or never measured
    limit = share * own[key]
    # An error near float32's own rounding is no difference.
    if key == "relative_error" and own[key] < 1e-5:
        return ""
    if key == "relative_error":
        others = [r for r in others if _reaches_all(r)]
    found = sorted((r[key], r["chain"]) for r in others if r.get(key) is not None)
    named = [f"{chain} {form(value)}" for value, chain in found if value < limit]
    return f"{words} than ours ({form(own[key])}): {', '.join(named)}" if named else ""


def _faster(others: Iterable[Row], words: str) -> str:
    found = sorted(
        (r["ratio"][0], r["chain"]) for r in others if "ratio" in r and r["ratio"][2] < 1
    )
    named = [f"{chain} at {value:.2f} of our time" for value, chain in found]
    return f"{words}: {', '.join(named)}" if named else ""


if __name__ == "__main__":
    here = Path(__file__).parent
    found = json.loads((here / "results.json").read_text(encoding="utf-8"))
    (here / "results.md").write_text(document(found), encoding="utf-8")
