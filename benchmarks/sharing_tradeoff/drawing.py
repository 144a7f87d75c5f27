"""The results as one SVG: quality against parameters, and under quantization and pruning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.scaling.plot import Scale
from benchmarks.sharing_tradeoff.claims import describe
from benchmarks.sharing_tradeoff.results import Cell, Figure, Results

__all__ = ["draw"]

WIDTH, HEIGHT, HEAD = 460, 280, 44
LEFT, RIGHT, TOP, BOTTOM = 54, 20, 34, 64
STYLE = """
svg { font: 11px system-ui, sans-serif; background: #fff; color: #1c2330 }
text { fill: currentColor }
.title { font-weight: 600 } .head { font-size: 15px; font-weight: 600 }
.tick { fill: #5b6577 } .grid { stroke: #dfe3ea }
.a { stroke: #0b63c5; fill: #0b63c5 } .b { stroke: #c2570c; fill: #c2570c }
path { fill: none !important; stroke-width: 1.8 } path.grid { stroke-width: 1 }
.b path.line { stroke-dasharray: 6 3 } g text { stroke: none }
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
    """A point: where, what, and its name."""

    x: float
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
        "<title>Quality of sharing schemes against their parameters, and of full and no sharing "
        "in each precision and at each share of pruned weights</title>",
        f"<style>{STYLE}</style>",
        '<text class="head" x="14" y="26">What sharing costs, alone and with the rest</text>',
    ]
    for column, (task, words) in enumerate(QUALITIES.items()):
        panels = (_against_parameters(results, task), _against_changes(results, task))
        for row, (ticks, lines, place) in enumerate(panels):
            parts += [
                f'<g transform="translate({column * WIDTH} {HEAD + row * HEIGHT})">',
                f'<text class="title" x="{LEFT}" y="14">{escape(words)}</text>',
                *_panel(ticks, lines, place),
                "</g>",
            ]
    return "\n".join([*parts, "</svg>"]) + "\n"


_Panel = tuple[Mapping[str, float], Sequence[Line], Callable[[float], float]]


def _against_parameters(results: Results, task: str) -> _Panel:
    schemes = results.schemes(task)
    sizes = {s: results.rows_of(Cell(task, s))[0]["parameters"]["unique"] for s in schemes}
    lines = [
        Line(
            words,
            [
                Mark(sizes[s], results.accuracy(Cell(task, s, distilled)).times(100), s)
                for s in schemes
            ],
        )
        for distilled, words in ((False, "plain"), (True, "distilled"))
    ]
    scale = Scale(min(sizes.values()) / 1.1, max(sizes.values()) * 1.1, LEFT, WIDTH - RIGHT)
    ticks = {f"{scheme} {size / 1e3:,.0f} k": size for scheme, size in sizes.items()}
    return ticks, lines, scale.place


def _against_changes(results: Results, task: str) -> _Panel:
    changes = [
        Cell(task, "", pruned=share, precision=precision)
        for share in results.values("pruned")
        for precision in sorted(results.values("precision"), key=("fp32", "int8", "int4").index)
    ]
    lines = [
        Line(
            scheme,
            [
                Mark(
                    place,
                    results.accuracy(
                        Cell(task, scheme, pruned=cell.pruned, precision=cell.precision)
                    ).times(100),
                    describe(cell),
                )
                for place, cell in enumerate(changes)
            ],
        )
        for scheme in ("none", "all")
    ]
    step = (WIDTH - LEFT - RIGHT) / len(changes)
    ticks = {describe(cell): float(place) for place, cell in enumerate(changes)}
    return ticks, lines, lambda place: round(LEFT + step * (place + 0.5), 1)


def _panel(
    ticks: Mapping[str, float], lines: Sequence[Line], place: Callable[[float], float]
) -> Iterator[str]:
    means = [mark.figure.mean for line in lines for mark in line.marks]
    low, high = min(means), max(means)
    margin = 0.12 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def up(value: float) -> float:
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    for index in range(5):
        value = low + (high - low) * index / 4
        yield f'<path class="grid" d="M{LEFT} {up(value)}H{WIDTH - RIGHT}"/>'
        yield (
            f'<text class="tick" x="{LEFT - 6}" y="{up(value) + 4}" text-anchor="end">'
            f"{value:.1f}</text>"
        )
    for name, value in ticks.items():
        x, y = place(value), HEIGHT - BOTTOM + 12
        yield (
            f'<text class="tick" x="{x}" y="{y}" text-anchor="end" '
            f'transform="rotate(-32 {x} {y})">{escape(name)}</text>'
        )
    for index, (css, line) in enumerate(zip("ab", lines, strict=True)):
        spots = [(place(mark.x), up(mark.figure.mean)) for mark in line.marks]
        x = WIDTH - RIGHT - 170 + 90 * index
        yield f'<g class="{css}"><path class="line" d="M{x} 10h20"/>'
        yield f'<text x="{x + 25}" y="14">{escape(line.name)}</text>'
        yield f'<path class="line" d="M{"L".join(f"{a} {b}" for a, b in spots)}"/>'
        for mark, (a, b) in zip(line.marks, spots, strict=True):
            half = mark.figure.half_width if len(mark.figure.values) > 1 else 0.0
            ends = up(mark.figure.mean - half), up(mark.figure.mean + half)
            told = f"{line.name}, {mark.name}: {mark.figure.mean:.1f}"
            yield f'<path d="M{a} {ends[0]}V{ends[1]}"/>'
            yield f'<circle cx="{a}" cy="{b}" r="3"><title>{escape(told)}</title></circle>'
        yield "</g>"
