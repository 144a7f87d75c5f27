"""The committed results as tables and drawings.

    python -m benchmarks.sharing_tradeoff.table [--raw FOLDER] [--output FOLDER]

Reads ``raw/*.json`` and, where they are there beside it, ``raw-other-start/*.json`` and
``latency.json``; writes ``results.md`` and ``results.svg``. Seeds whose runs are not all there are
left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks.sharing_tradeoff.claims import (
    Claim,
    above,
    claims,
    describe,
    interactions,
    lost,
)
from benchmarks.sharing_tradeoff.drawing import draw
from benchmarks.sharing_tradeoff.method import LIMITS, METHOD
from benchmarks.sharing_tradeoff.results import (
    Cell,
    Estimate,
    Figure,
    Results,
    read_results,
    read_times,
)
from benchmarks.sharing_tradeoff.settings import FULL, OTHER_START, Study
from exporter.errors import ExportError

__all__ = ["document"]

HERE = Path(__file__).parent
LATENCY = "latency.json"
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--raw", type=_FOLDER, default=HERE / "raw", show_default="raw")
@click.option("--output", type=_FOLDER, default=HERE, show_default="beside this file")
def main(raw: Path, output: Path) -> None:
    """Write the tables and drawings."""
    other = raw.with_name(f"{raw.name}-other-start")
    try:
        results = _whole(raw, FULL)
        swapped = _whole(other, OTHER_START) if other.is_dir() else None
        times = read_times(raw.with_name(LATENCY), FULL)
    except (ExportError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if swapped and swapped.seeds() != results.seeds():
        raise click.ClickException(f"{other} holds other seeds than {raw}: finish both studies")
    output.mkdir(parents=True, exist_ok=True)
    (output / "results.md").write_text(document(results, times, swapped), encoding="utf-8")
    (output / "results.svg").write_text(draw(results), encoding="utf-8")


def document(results: Results, times: Mapping[str, Any], swapped: Results | None = None) -> str:
    """Return the whole page.

    Args:
        results: of the full study.
        times: what :func:`~.results.read_times` read; may be empty, or lack a task, a scheme or a
            precision.
        swapped: of the study that starts from other weights, where it was run.
    """
    seeds = len(results.seeds())
    lines = [
        "# Results of the sharing study",
        "",
        f"Means over {seeds} seeds, ± half of the 95 % interval of that mean (Student's t). What "
        "is subtracted or divided within a task is so seed by seed.",
        "",
        "    python -m benchmarks.sharing_tradeoff.run",
        "    python -m benchmarks.sharing_tradeoff.run --study other-start",
        "    python -m benchmarks.sharing_tradeoff.latency",
        "    python -m benchmarks.sharing_tradeoff.table",
        "",
        METHOD,
        "",
        "![What sharing costs, alone and with the rest](results.svg)",
        "",
        "## Claims",
        "",
        *_claims(list(claims(results))),
        "",
        "## Parameters, bytes, times",
        "",
        *_sizes(results, times),
        "",
        "## Quality",
        "",
        *_quality(results),
        *(_by_start(results, swapped) if swapped else ()),
    ]
    for task, heading, write in (
        ("classify", "Sentences labelled right, %", _percent(results)),
        ("generate", "Perplexity", _perplexities(results)),
    ):
        lines += ["", f"## {heading}", "", *_matrix(results, task, write)]
    lines += ["", "## Perplexity above that of the same models in float32, unpruned, %", ""]
    lines += _matrix(results, "generate", _above_own(results))
    lines += ["", "## What full sharing adds to the cost of the rest", "", *_additions(results)]
    lines += ["", "## Limits", "", LIMITS]
    return "\n".join(lines) + "\n"


def _claims(found: Sequence[Claim]) -> Iterator[str]:
    yield "| claim | measured | here it |"
    yield "|---|--:|---|"
    for claim in found:
        yield f"| {claim.text} | {spread(claim.measured)} {claim.unit} | {claim.verdict} |"


def _sizes(results: Results, times: Mapping[str, Any]) -> Iterator[str]:
    precisions = results.precisions()
    for task in ("classify", "generate"):
        timed = "; times, and their ratio to `none` in the same precision" if task in times else ""
        yield f"`{task}`; files as they are and as brotli{timed}:"
        yield ""
        heads = [f"{precision} MB" for precision in precisions]
        heads += [f"{precision} ms" for precision in precisions] if task in times else []
        yield "| scheme | parameters | of those of `none` | " + " | ".join(heads) + " |"
        yield "|---|--:|--:|" + "--:|" * len(heads)
        whole = results.rows_of(Cell(task, "none"))[0]["parameters"]["unique"]
        for scheme in results.schemes(task):
            row = results.rows_of(Cell(task, scheme))[0]
            unique = row["parameters"]["unique"]
            cells = [f"{unique:,}", f"{unique / whole:.0%}".replace("%", " %")]
            for precision in precisions:
                row = results.rows_of(Cell(task, scheme, precision=precision))[0]
                cells.append(f"{row['file_bytes'] / 1e6:.2f} ({row['brotli_bytes'] / 1e6:.2f})")
            if task in times:
                own = times[task].get(scheme, {})
                cells += [_time(own.get(precision)) for precision in precisions]
            yield f"| {scheme} | " + " | ".join(cells) + " |"
        yield ""
    yield (
        "`generate` reads and writes pieces with one table in every scheme: that much is shared in "
        "`none`, too."
    )
    yield ""
    yield "Pruned weights stay in the files; what pruning saves is on the wire (`all`, brotli, MB):"
    yield ""
    shares = results.values("pruned")
    heads = [f"{share:.0%} pruned".replace("%", " %") for share in shares]
    yield "| task | precision | " + " | ".join(heads) + " |"
    yield "|---|---|" + "--:|" * len(shares)
    for task in ("classify", "generate"):
        for precision in precisions:
            wire = [
                results.rows_of(Cell(task, "all", pruned=share, precision=precision))[0]
                for share in shares
            ]
            cells = [f"{row['brotli_bytes'] / 1e6:.3f}" for row in wire]
            yield f"| {task} | {precision} | " + " | ".join(cells) + " |"


def _quality(results: Results) -> Iterator[str]:
    yield "| scheme | sentences right, % | distilled | perplexity | distilled | pieces right, % |"
    yield "|---|--:|--:|--:|--:|--:|"
    for scheme in results.schemes("classify"):
        cells = []
        for task, figure, factor in (
            ("classify", results.accuracy, 100),
            ("generate", results.perplexity, 1),
        ):
            for distilled in (False, True):
                cells.append(spread(figure(Cell(task, scheme, distilled)).times(factor)))
        cells.append(spread(results.accuracy(Cell("generate", scheme)).times(100)))
        yield f"| {scheme} | " + " | ".join(cells) + " |"
    yield ""
    yield "Lost of the unshared encoder's accuracy, and perplexity above its own, in per cent:"
    yield ""
    yield "| scheme | understanding | distilled | generation | distilled | perplexity | distilled |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for scheme in results.schemes("classify"):
        if scheme != "none":
            cells = [
                spread(lost(results, Cell(task, scheme, distilled)))
                for task in ("classify", "generate")
                for distilled in (False, True)
            ]
            cells += [spread(above(results, Cell("generate", scheme, d))) for d in (False, True)]
            yield f"| {scheme} | " + " | ".join(cells) + " |"


def _by_start(results: Results, swapped: Results) -> Iterator[str]:
    yield ""
    yield (
        "How much of this hangs on the random weights that training starts from: of a deviation "
        "by each matrix's number of inputs, or of ALBERT's 0.02, which is that for 2,500 inputs. "
        "Plain encoders from the start of the tables above, and from the other one:"
    )
    yield ""
    yield "| scheme | sentences right, % | from 0.02 | perplexity, from 0.02 | by inputs |"
    yield "|---|--:|--:|--:|--:|"
    pairs = [(task, which) for task in OTHER_START.tasks for which in (results, swapped)]
    write = {"classify": _percent, "generate": _perplexities}
    cost = {"classify": lost, "generate": above}
    for scheme in OTHER_START.schemes:
        cells = [write[task](which)(Cell(task, scheme)) for task, which in pairs]
        yield f"| {scheme} | " + " | ".join(cells) + " |"
    costs = [spread(cost[task](which, Cell(task, "all"))) for task, which in pairs]
    yield "| `all` loses, or adds, % | " + " | ".join(costs) + " |"


def _matrix(results: Results, task: str, write: Callable[[Cell], str]) -> Iterator[str]:
    columns = [
        Cell(task, "", pruned=share, precision=precision)
        for share in results.values("pruned")
        for precision in results.precisions()
    ]
    heads = [describe(cell) if cell.pruned else cell.precision for cell in columns]
    yield "| scheme | trained | " + " | ".join(heads) + " |"
    yield "|---|---|" + "--:|" * len(heads)
    for scheme in results.schemes(task):
        for distilled in (False, True):
            cells = [write(replace(c, scheme=scheme, distilled=distilled)) for c in columns]
            words = "distilled" if distilled else "plain"
            yield f"| {scheme} | {words} | " + " | ".join(cells) + " |"


def _additions(results: Results) -> Iterator[str]:
    yield (
        "Points of accuracy that each change costs or brings under `all`, less what it does "
        "under `none`. Zero is independence."
    )
    yield ""
    yield "| change | understanding | generation |"
    yield "|---|--:|--:|"
    found = [interactions(results, task, "all") for task in ("classify", "generate")]
    for (name, first), (_, second) in zip(*found, strict=True):
        yield f"| {name} | {spread(first, sign=True)} | {spread(second, sign=True)} |"


def spread(figure: Estimate | Figure, *, sign: bool = False) -> str:
    """Write a mean and half of its interval; of one seed the mean alone."""
    digits = 2 if abs(figure.mean) < 100 else 1
    mean = f"{figure.mean:{'+' if sign else ''}.{digits}f}"
    return mean if math.isinf(figure.half_width) else f"{mean} ± {figure.half_width:.{digits}f}"


def _whole(folder: Path, study: Study) -> Results:
    results = read_results(folder, study)
    if not results.seeds():
        raise ValueError(f"{folder} has no seed with all its runs")
    return results


def _percent(results: Results) -> Callable[[Cell], str]:
    return lambda cell: spread(results.accuracy(cell).times(100))


def _perplexities(results: Results) -> Callable[[Cell], str]:
    return lambda cell: spread(results.perplexity(cell))


def _above_own(results: Results) -> Callable[[Cell], str]:
    return lambda cell: spread(above(results, cell, Cell(cell.task, cell.scheme, cell.distilled)))


def _time(found: Sequence[float] | None) -> str:
    return "–" if found is None else "{:.2f} (×{:.2f}, {:.2f}–{:.2f})".format(*found)


if __name__ == "__main__":
    main()
