"""The results as one SVG: quality of each scheme, and under quantization and pruning.

Lines join means; each seed is a dot, since three make no interval worth drawing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

from benchmarks.sharing_tradeoff.claims import describe
from benchmarks.sharing_tradeoff.results import Cell, Figure, Results

__all__ = ["draw"]

WIDTH, HEIGHT, HEAD = 460, 300, 44
LEFT, RIGHT, TOP, BOTTOM = 54, 20, 34, 84
STYLE = """
svg { font: 11px system-ui, sans-serif; background: #fff; color: #1c2330 }
text { fill: currentColor }
.title { font-weight: 600 } .head { font-size: 15px; font-weight: 600 }
.tick { fill: #5b6577 } .grid { stroke: #dfe3ea }
.a { stroke: #0b63c5; fill: #0b63c5 } .b { stroke: #c2570c; fill: #c2570c }
path { fill: none !important; stroke-width: 1.8 } path.grid { stroke-width: 1 }
.b path.line { stroke-dasharray: 6 3 } g text { stroke: none } .seed { opacity: .45 }
@media (prefers-color-scheme: dark) {
  svg { background: #14181f; color: #e6e9ef } .tick { fill: #9aa4b5 } .grid { stroke: #2b323d }
  .a { stroke: #6cb0ff; fill: #6cb0ff } .b { stroke: #ff9d57; fill: #ff9d57 }
}
""".strip()

QUALITIES = {
    "classify": "sentences labelled right, %",
    "generate": "next pieces given right, %",
}


@dataclass(frozen=True)
class Mark:
    """A point: what, and its name."""

    figure: Figure
    name: str


@dataclass(frozen=True)
class Line:
    """Marks in their order, and what they have in common."""

    name: str
    marks: Sequence[Mark]


def draw(results: Results) -> str:
    """Return the drawing: a column per task."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEAD + 2 * HEIGHT}" '
        'role="img">',
        "<title>Quality of sharing schemes, those with fewest parameters first, and of full and "
        "no sharing in each precision and at each share of pruned weights</title>",
        f"<style>{STYLE}</style>",
        '<text class="head" x="14" y="26">What sharing costs, alone and with the rest</text>',
    ]
    for column, (task, words) in enumerate(QUALITIES.items()):
        panels = (_of_schemes(results, task), _of_changes(results, task))
        for row, (ticks, lines) in enumerate(panels):
            parts += [
                f'<g transform="translate({column * WIDTH} {HEAD + row * HEIGHT})">',
                f'<text class="title" x="{LEFT}" y="14">{escape(words)}</text>',
                *_panel(ticks, lines),
                "</g>",
            ]
    return "\n".join([*parts, "</svg>"]) + "\n"


_Panel = tuple[Sequence[str], Sequence[Line]]
"""Names of the places along the bottom, and what is drawn above them."""


def _of_schemes(results: Results, task: str) -> _Panel:
    schemes = results.schemes(task)[::-1]
    sizes = [results.rows_of(Cell(task, s))[0]["parameters"]["unique"] for s in schemes]
    lines = [
        Line(
            words,
            [Mark(results.accuracy(Cell(task, s, distilled)).times(100), s) for s in schemes],
        )
        for distilled, words in ((False, "plain"), (True, "distilled"))
    ]
    return [f"{s}, {size / 1e3:,.0f} k" for s, size in zip(schemes, sizes, strict=True)], lines


def _of_changes(results: Results, task: str) -> _Panel:
    changes = [
        Cell(task, "", pruned=share, precision=precision)
        for share in results.values("pruned")
        for precision in results.precisions()
    ]
    lines = [
        Line(
            scheme,
            [
                Mark(results.accuracy(replace(cell, scheme=scheme)).times(100), describe(cell))
                for cell in changes
            ],
        )
        for scheme in ("none", "all")
    ]
    return [describe(cell) for cell in changes], lines


def _panel(ticks: Sequence[str], lines: Sequence[Line]) -> Iterator[str]:
    step = (WIDTH - LEFT - RIGHT) / len(ticks)
    places = [round(LEFT + step * (index + 0.5), 1) for index in range(len(ticks))]
    values = [value for line in lines for mark in line.marks for value in mark.figure.values]
    low, high = min(values), max(values)
    margin = 0.12 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def up(value: float) -> float:
        share = (value - low) / (high - low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    for index in range(5):
        value = low + (high - low) * index / 4
        yield f'<path class="grid" d="M{LEFT} {up(value)}H{WIDTH - RIGHT}"/>'
        yield (
            f'<text class="tick" x="{LEFT - 6}" y="{up(value) + 4}" text-anchor="end">'
            f"{value:.1f}</text>"
        )
    for name, x in zip(ticks, places, strict=True):
        y = HEIGHT - BOTTOM + 12
        yield (
            f'<text class="tick" x="{x}" y="{y}" text-anchor="end" '
            f'transform="rotate(-32 {x} {y})">{escape(name)}</text>'
        )
    for index, (css, line) in enumerate(zip("ab", lines, strict=True)):
        spots = [(x, up(m.figure.mean)) for x, m in zip(places, line.marks, strict=True)]
        key = WIDTH - RIGHT - 170 + 90 * index
        yield f'<g class="{css}"><path class="line" d="M{key} 10h20"/>'
        yield f'<text x="{key + 25}" y="14">{escape(line.name)}</text>'
        yield f'<path class="line" d="M{"L".join(f"{a} {b}" for a, b in spots)}"/>'
        for mark, (a, b) in zip(line.marks, spots, strict=True):
            told = f"{line.name}, {mark.name}: {mark.figure.mean:.1f}"
            for value in mark.figure.values:
                yield f'<circle class="seed" cx="{a}" cy="{up(value)}" r="2.2"/>'
            yield f'<circle cx="{a}" cy="{b}" r="3"><title>{escape(told)}</title></circle>'
        yield "</g>"
