"""The rows as curves, in one SVG: a panel per axis and figure, both scales logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["draw"]

Row = Mapping[str, Any]

WIDTH, HEIGHT = 230, 180
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 30, 34
HEAD = 44
STYLE = """
svg { font: 11px system-ui, sans-serif; background: #fff; color: #1c2330 }
text { fill: currentColor }
.title { font-weight: 600 } .head { font-size: 15px; font-weight: 600 }
.tick { fill: #5b6577 } .grid { stroke: #dfe3ea }
.rolled { stroke: #0b63c5; fill: #0b63c5 } .unrolled { stroke: #c2570c; fill: #c2570c }
.unshared { stroke: #6b7280; fill: #6b7280 }
path { fill: none !important; stroke-width: 1.8 } path.grid { stroke-width: 1 }
.unrolled path { stroke-dasharray: 6 3 }
.unshared path { stroke-dasharray: 2 3 }
.legend text { stroke: none }
@media (prefers-color-scheme: dark) {
  svg { background: #14181f; color: #e6e9ef } .tick { fill: #9aa4b5 } .grid { stroke: #2b323d }
  .rolled { stroke: #6cb0ff; fill: #6cb0ff } .unrolled { stroke: #ff9d57; fill: #ff9d57 }
  .unshared { stroke: #a3abba; fill: #a3abba }
}
""".strip()

FIGURES = {
    "file_bytes": ("file, MB", 1e-6),
    "export_s": ("export, s", 1.0),
    "export_peak_bytes": ("export peak memory, MB", 1e-6),
    "load_ms": ("load, ms", 1.0),
    "median_ms": ("run, ms", 1.0),
}
PANELS = (
    *(("depth", key) for key in FIGURES),
    ("sequence", "median_ms"),
    *(("width", key) for key in FIGURES),
    ("batch", "median_ms"),
)
COLUMNS = 6
LAYOUTS = ("rolled", "unrolled", "unshared")


@dataclass(frozen=True)
class Scale:
    """A logarithmic scale from ``low`` to ``high`` onto pixels."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)


def draw(rows: Sequence[Row]) -> str:
    """Return the drawing; a panel without rows is left empty."""
    lines = math.ceil(len(PANELS) / COLUMNS)
    width, height = COLUMNS * WIDTH, HEAD + lines * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>File, export, load and run against depth, width, sequence and batch, for "
        "rolled, unrolled and unshared</title>",
        f"<style>{STYLE}</style>",
        '<text class="head" x="14" y="26">How size, export and speed grow</text>',
        *_legend(),
    ]
    for index, (axis, key) in enumerate(PANELS):
        chosen = [row for row in rows if row["axis"] == axis]
        if len({row["value"] for row in chosen}) > 1:
            x, y = index % COLUMNS * WIDTH, HEAD + index // COLUMNS * HEIGHT
            parts += [f'<g transform="translate({x} {y})">', *_panel(axis, key, chosen), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterable[str]:
    for index, layout in enumerate(LAYOUTS):
        x = 330 + 110 * index
        yield (
            f'<g class="{layout} legend"><path d="M{x} 22h28"/>'
            f'<text x="{x + 34}" y="26">{layout}</text></g>'
        )


def _panel(axis: str, key: str, rows: Sequence[Row]) -> Iterable[str]:
    words, unit = FIGURES[key]
    points = {
        layout: sorted((row["value"], row[key] * unit) for row in rows if row["layout"] == layout)
        for layout in LAYOUTS
    }
    places = sorted({row["value"] for row in rows})
    values = [value for line in points.values() for _, value in line]
    across = Scale(places[0], places[-1], LEFT, WIDTH - RIGHT)
    up = Scale(min(values) / 1.15, max(values) * 1.15, HEIGHT - BOTTOM, TOP)
    yield f'<text class="title" x="{LEFT}" y="18">{escape(words)}</text>'
    for value in _ticks(up.low, up.high):
        y = up.place(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>'
    for place in places:
        x = across.place(place)
        y = HEIGHT - BOTTOM + 14
        yield f'<text class="tick" x="{x}" y="{y}" text-anchor="middle">{place}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="tick" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{axis}</text>'
    for layout, line in reversed(points.items()):  # the first one on top
        marks = [(across.place(place), up.place(value)) for place, value in line]
        yield f'<g class="{layout}"><path d="M{"L".join(f"{x} {y}" for x, y in marks)}"/>'
        for (place, value), (x, y) in zip(line, marks, strict=True):
            told = f"{layout}, {axis} {place}: {value:.3g} {words.split(', ')[1]}"
            yield f'<circle cx="{x}" cy="{y}" r="2.6"><title>{escape(told)}</title></circle>'
        yield "</g>"


def _ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic scale: 1, 2, 5 and their tens, at most five."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    tens = range(first, last + 1)
    for steps in ((1, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [s * 10.0**t for t in tens for s in steps if low <= s * 10.0**t <= high]
        if len(found) <= 5:
            break
    return [float(f"{value:.3g}") for value in found]
