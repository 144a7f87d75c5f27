"""How an inspection looks in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exporter.cli.console import megabytes, output_console, print_table
from exporter.inspection import CopyGroup, Inspection, ModelInspection

__all__ = ["headline", "print_inspection"]

_GROUPS = 10
_NAMES = 2
_OPERATORS = 8
_LOOPS = 4
_NAME_WIDTH = 38


def headline(model: ModelInspection) -> str:
    """Say in one sentence what the file wastes."""
    stored = megabytes(model.stored_bytes)
    if not (wasted := _wasted(model)):
        small = f", but for {model.wasted_bytes:,} bytes" if model.wasted_bytes else ""
        return f"{stored} stored, each tensor once{small}."
    unique = megabytes(model.stored_bytes - wasted)
    return f"{stored} stored, {unique} unique: {megabytes(wasted)} are copies."


def _wasted(model: ModelInspection) -> int:
    return sum(group.wasted_bytes for group in model.notable_copies)


def print_inspection(inspection: Inspection) -> None:
    """Print everything worth a look: a table of several models, then the details of each."""
    console = output_console()
    if inspection.kind == "artifact":
        _line(
            console,
            f"Artifact {inspection.path}: {inspection.verdict}, sharing scheme "
            f"{inspection.scheme}; its files have the hashes of its manifest.",
        )
    if inspection.early_exit is not None:
        _line(console, f"Leaves early: {_early_exit(inspection.early_exit)}")
    models = inspection.models
    if len(models) > 1:
        _print_models(console, models)
    _print_skipped(console, (model for model in models if model.is_shipped))
    for model in models:
        if len(models) == 1:
            _print_model(console, model)
        elif not model.is_shared:
            _line(console, f"\n{model.path}")
            _print_model(console, model)
        elif model is models[0]:  # the others are the same model in other precisions
            _line(console, f"\n{model.path}")
            _print_facts(console, model)


def _early_exit(early_exit: Mapping[str, Any]) -> str:
    by_data: dict[str, list[str]] = {}
    for variant, one in early_exit["calibrated"].items():
        value = "never" if one["value"] is None else f"{one['value']:g}"
        by_data.setdefault(one["data"], []).append(f"{variant} {value}")
    chosen = [f"calibrated on {data}: {', '.join(values)}" for data, values in by_data.items()]
    return "; ".join([early_exit["rule"], *(chosen or ["not calibrated"])])


def _print_models(console: Console, models: Iterable[ModelInspection]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for column in ("file", "stored", "unique", "copies", "brotli", "fewer bits", "verified"):
        table.add_column(column, justify="right", no_wrap=True)
    for m in models:
        table.add_row(
            m.variant or m.path,
            megabytes(m.file_bytes),
            megabytes(m.stored_bytes),
            megabytes(m.stored_bytes - _wasted(m)),
            megabytes(_wasted(m)),
            megabytes(m.transfer.brotli_bytes) if m.transfer else "-",
            _coverage(m),
            m.verdict or "-",
        )
    print_table(console, table)


def _coverage(model: ModelInspection) -> str:
    """Say for how many operations and bytes weights are in fewer bits.

    That is what the manifest says where there is one, else what the file shows.
    """
    if (coverage := model.coverage) is not None:
        done, total = coverage["operations_reached"], coverage["operations_total"]
        return f"{done} of {total}, {100 * coverage['bytes_share']:.1f} %"
    reach = model.quantizer
    share = _percent(reach.reduced_bytes, reach.weight_bytes)
    return f"{reach.count('reduced')} of {len(reach.operations)}, {share}"


def _print_skipped(console: Console, models: Iterable[ModelInspection]) -> None:
    """Name the weights that the precisions of an artifact left, and why."""
    found: dict[tuple[str, int, str], list[str]] = {}
    for model in models:
        for left in (model.coverage or {}).get("skipped", ()):
            key = (left["value"], left["nbytes"], left["reason"])
            found.setdefault(key, []).append(str(model.variant))
    if found:
        _line(console, "\nWeights left as they are:")
    skipped = sorted(found.items(), key=lambda item: -item[0][1])
    for (weight, nbytes, reason), variants in skipped[:_GROUPS]:
        _line(console, f"  {weight} ({nbytes:,} bytes) in {', '.join(variants)}: {reason}")
    if len(skipped) > _GROUPS:
        _line(console, f"  … and {len(skipped) - _GROUPS} more; --json lists all")


def _print_model(console: Console, model: ModelInspection) -> None:
    console.print(headline(model), style="bold", markup=False)
    if model.repair:
        _line(console, f"Repair: {model.repair}")
    console.print()
    _print_sizes(console, model)
    if model.notable_copies:
        console.print()
        _print_copies(console, model.notable_copies)
    console.print()
    _print_facts(console, model)


def _print_facts(console: Console, model: ModelInspection) -> None:
    if model.coverage is not None:
        _line(console, f"Coverage:  {_coverage(model)} of the bytes of weights")
    _line(console, f"Quantizer: {_quantizer(model)}")
    _line(console, f"Rolled:    {_rolled(model)}")
    _line(console, f"Operators: {_operators(model)}")


def _print_sizes(console: Console, model: ModelInspection) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    unused = f", {model.unused_bytes:,} of them read by nothing" if model.unused_bytes else ""
    notes = f", {model.annotation_bytes:,} of them metadata"
    unique = model.stored_bytes - _wasted(model)
    table.add_row("unique", f"{unique:,}", _clipped("bytes of distinct tensors"))
    stored = _clipped(f"bytes of {model.tensors} tensors{unused}")
    table.add_row("stored", f"{model.stored_bytes:,}", stored)
    beyond = model.file_bytes - model.stored_bytes
    file = _clipped(f"{beyond:,} beyond the tensors{notes}")
    table.add_row("file", f"{model.file_bytes:,}", file)
    if model.transfer:
        table.add_row("brotli", f"{model.transfer.brotli_bytes:,}", "on the wire, quality 5")
        table.add_row("gzip", f"{model.transfer.gzip_bytes:,}", "on the wire, level 6")
    console.print(table)


def _print_copies(console: Console, copies: tuple[CopyGroup, ...]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("wasted bytes", justify="right", no_wrap=True)
    for column in ("tensors", "type and shape", "kind"):
        table.add_column(column, no_wrap=True)
    table.add_column("names")
    for group in copies[:_GROUPS]:
        shape = ", ".join(map(str, group.shape))
        table.add_row(
            f"{group.wasted_bytes:,}",
            str(len(group.members)),
            Text(f"{group.dtype.lower()} [{shape}]"),
            ", ".join(group.kinds),
            _clipped(_names(group)),
        )
    console.print(table)
    if rest := copies[_GROUPS:]:
        wasted = sum(group.wasted_bytes for group in rest)
        _line(console, f"… and {len(rest)} more groups ({wasted:,} bytes); --json lists all")


def _names(group: CopyGroup) -> str:
    names = [_shorten(member.entry.name) for member in group.members]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    packed = " = " + " | ".join(map(_shorten, group.packed_from)) if group.packed_from else ""
    return ", ".join(names[:_NAMES]) + more + packed


def _quantizer(model: ModelInspection) -> str:
    reach = model.quantizer
    total, done = len(reach.operations), reach.count("reduced")
    if not total:
        return "no operation reads a weight"
    reduced = ""
    if done:
        share = _percent(reach.reduced_bytes, reach.weight_bytes)
        reduced = f"{done} of {total} weight operations read fewer bits, {share} of weight bytes; "
        if done == total:
            return reduced.removesuffix("; ")
    text = (
        f"{reduced}one that sees initializers of the main graph reaches "
        f"{reach.count('reached')} of {total} weight operations, "
        f"{_percent(reach.reached_bytes, reach.weight_bytes)} of weight bytes"
    )
    missed = ", ".join(f"{count} {reason}" for reason, count in reach.reasons.items())
    return f"{text}; missed: {missed}" if missed else text


def _rolled(model: ModelInspection) -> str:
    if not model.rolled:
        return "no loops"
    loops = []
    for loop in model.rolled[:_LOOPS]:
        times = "?" if loop.iterations is None else str(loop.iterations)
        depth = f" (input {loop.depth_input!r})" if loop.depth_input else ""
        stacked = f", {loop.stacked_bytes:,} bytes stacked" if loop.stacked_bytes else ""
        loops.append(
            f"{_shorten(loop.name)}: {times} × {loop.nodes} nodes{depth}, "
            f"{loop.carried} carried{stacked}"
        )
    more = len(model.rolled) - _LOOPS
    return "; ".join(loops) + (f"; and {more} more" if more > 0 else "")


def _operators(model: ModelInspection) -> str:
    shown = ", ".join(f"{c.operator} {c.total}" for c in model.operators[:_OPERATORS])
    rest = len(model.operators) - _OPERATORS
    more = f", and {rest} more kinds" if rest > 0 else ""
    inner = sum(count.in_bodies for count in model.operators)
    bodies = f", {inner} of them in loops and branches" if inner else ""
    functions = f", {sum(model.functions.values())} in functions" if model.functions else ""
    return f"{model.nodes:,} nodes{bodies}{functions}: {shown}{more}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _clipped(text: str) -> Text:
    """Make a cell that takes one line, however narrow its column."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _shorten(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"…{name[1 - _NAME_WIDTH :]}"


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False)
