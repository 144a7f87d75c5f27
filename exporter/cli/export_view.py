"""How an export looks in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exporter.cli.console import megabytes, output_console, print_table

__all__ = ["print_summary"]


def print_summary(record: Mapping[str, Any]) -> None:
    """Print sizes, layout, verdict, and a table of the reduced precisions.

    Args:
        record: what ``--json`` prints.
    """
    console = output_console()
    for notice in record["notices"]:
        console.print(f"note: {notice}", markup=False)
    _print_graph(console, record)
    reduced = [
        model
        for model in record["models"]
        if model["coverage"] is not None and not model["variant"].startswith("baseline")
    ]
    if reduced:
        console.print()
        _print_precisions(console, record, reduced)
    for model in record["models"]:
        for notice in model["notices"]:
            console.print(Text(f"WARNING {notice}", style="bold red"))
    for model in (record["float_graph"], *record["models"]):
        for reason in model["verification"].get("reasons", ())[:1] if model else ():
            console.print(Text(f"FAILED {model['variant']}: {reason}", style="bold red"))
    failed = ", marked as failed" if record["verdict"] == "failed" else ""
    console.print(f"artifact: {record['artifact']}{failed}", markup=False)


def _print_graph(console: Console, record: Mapping[str, Any]) -> None:
    error, graph = record["worst_abs_error"], _float_graph(record)
    checked = graph["verification"]
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    if (given := record["source"].get("stored_bytes")) is not None:
        table.add_row("source", megabytes(given), "tensors in the input file")
    table.add_row("unique", megabytes(record["unique_bytes"]), "distinct weights")
    table.add_row("stored", megabytes(record["stored_bytes"]), "tensors in the ONNX file")
    where = graph["path"] if record["float_graph"] is None else "in float32; not in the artifact"
    table.add_row("file", megabytes(record["file_bytes"]), where)
    if (layout := record["layout"]) is not None:
        each = ((loop["iterations"], loop["nodes"]) for loop in layout["loops"])
        loops = ", ".join(f"{'?' if times is None else times} × {nodes}" for times, nodes in each)
        nodes = f"{graph['nodes']} nodes"
        detail = f"{nodes}, loops of passes × nodes: {loops}" if loops else nodes
        table.add_row("layout", layout["chosen"], detail)
    table.add_row("unshared", megabytes(record["unshared_bytes"]), "the same model without sharing")
    ratio = "-" if record["ratio"] is None else f"{record['ratio']:.2f}×"
    table.add_row("ratio", ratio, f"unshared / stored; scheme {record['scheme']}")
    table.add_row(
        "worst error",
        "not finite" if error is None else f"{error:.1e}",
        f"{checked['verdict']}: against {checked['reference']}, {len(checked['cases'])} inputs",
    )
    console.print(table)


def _float_graph(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record of the model in float32."""
    kept: Mapping[str, Any] | None = record["float_graph"]
    if kept is not None:
        return kept
    return next(model for model in record["models"] if model["variant"] == "fp32")


def _print_precisions(
    console: Console, record: Mapping[str, Any], models: Sequence[Mapping[str, Any]]
) -> None:
    bytes_of = {model["variant"]: model["file_bytes"] for model in record["models"]}
    has_baseline = "baseline" in bytes_of or any(
        f"baseline-{m['variant']}" in bytes_of for m in models
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("precision", no_wrap=True)
    columns = ["file", "of fp32", *(["unshared"] if has_baseline else []), "operations", "bytes"]
    for column in (*columns, "error", "limit", "top-1", "verdict"):
        table.add_column(column, justify="right", no_wrap=True)
    for model in models:
        coverage, checked = model["coverage"], model["verification"]
        unshared = bytes_of.get(f"baseline-{model['variant']}")
        table.add_row(
            model["variant"],
            megabytes(model["file_bytes"]),
            f"{model['file_bytes'] / record['file_bytes']:.3f}",
            *([megabytes(unshared) if unshared else "-"] if has_baseline else []),
            f"{coverage['operations_reached']} of {coverage['operations_total']}",
            _percent(coverage["bytes_share"]),
            "not finite"
            if checked["relative_error"] is None
            else _percent(checked["relative_error"]),
            _percent(checked["tolerance"]),
            _percent(checked["top1_agreement"]),
            checked["verdict"],
        )
    print_table(console, table)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"
