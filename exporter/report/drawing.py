"""Shapes of charts: numbers to positions, rows to marks.

Horizontal positions are percentages of the chart's width and vertical ones pixels, so that
one drawing fits a phone and a desk, with text of the same size on both. A row is a line of
text and, under it, a strip of marks; nothing can overlap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Axis", "Chart", "Dot", "Line", "Rect", "Text", "linear_axis", "log_axis"]

ROW = 40
TEXT_Y = 13
STRIP_Y = 20
STRIP_HEIGHT = 13
AXIS_HEIGHT = 24


@dataclass(frozen=True)
class Rect:
    """A bar from ``x`` to ``x + width`` percent."""

    x: float
    y: float
    width: float
    height: float
    style: str
    title: str = ""


@dataclass(frozen=True)
class Line:
    """A line in percent and pixels."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: str
    title: str = ""


@dataclass(frozen=True)
class Dot:
    """A point."""

    x: float
    y: float
    radius: float
    style: str
    title: str = ""


@dataclass(frozen=True)
class Text:
    """Text at a percentage; ``anchor`` is ``start``, ``middle`` or ``end``."""

    x: float
    y: float
    text: str
    anchor: str
    style: str


@dataclass(frozen=True)
class Axis:
    """A scale and its ticks.

    Args:
        place: from a value to a percentage, clamped to the chart.
        ticks: values and their texts.
    """

    place: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]


def linear_axis(largest: float, form: Callable[[float], str], start: float = 0.0) -> Axis:
    """Return a scale from ``start``, zero for bars, to ``largest``, with 2 to 6 round ticks."""
    reach = largest - start
    reach = reach if reach > 0 and math.isfinite(reach) else 1.0
    magnitude = 10 ** math.floor(math.log10(reach / 4))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if reach / (m * magnitude) <= 5)
    first = math.ceil(start / step - 1e-9)
    last = math.floor((start + reach) / step + 1e-9)
    ticks = tuple((i * step, _short(form(i * step)) if i else "0") for i in range(first, last + 1))
    return Axis(lambda value: 100 * min(max((value - start) / reach, 0.0), 1.0), ticks)


def log_axis(values: Iterable[float], form: Callable[[float], str]) -> Axis:
    """Return a scale for ratios: 1 is always on it, and twice is as far as half."""
    logs = [math.log2(v) for v in values if v > 0 and math.isfinite(v)]
    low, high = min([*logs, -0.5]) - 0.1, max([*logs, 0.5]) + 0.1
    every = max(1, math.ceil((high - low) / 5))
    first = math.ceil(low / every) * every
    exponents: list[float] = [float(e) for e in range(first, math.floor(high) + 1, every)]
    if high - low < 2.5:
        exponents = [math.log2(v) for v in (0.25, 0.5, 0.7, 1, 1.4, 2, 2.8)]
    exponents = [e for e in sorted({*exponents, 0.0}) if low <= e <= high]

    def place(value: float) -> float:
        log = math.log2(value) if value > 0 else low
        return 100 * min(max((log - low) / (high - low), 0.0), 1.0)

    return Axis(place, tuple((2**e, _short(form(2**e))) for e in exponents))


def _short(text: str) -> str:
    """Drop decimals that are zero: ``2.00 MB`` is ``2 MB`` on an axis."""
    return (
        re.sub(r"(\.\d*?)0+(?!\d)", r"\1", text)
        .replace(".\N{NO-BREAK SPACE}", "\N{NO-BREAK SPACE}")
        .replace(".×", "×")
    )


@dataclass
class Chart:
    """A drawing that grows row by row.

    Args:
        caption: what it shows, and which way is better.
        axis: its horizontal scale.
        summary: the same in words, for those who do not see it; grows with the rows.
        marker: a value to mark with a strong vertical line.
    """

    caption: str
    axis: Axis
    marker: float | None = None
    shapes: list[Rect | Line | Dot] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    strips: list[float] = field(default_factory=list)
    height: float = 4

    def heading(self, text: str) -> None:
        """Add a line of text that the next rows belong to."""
        self.texts.append(Text(0, self.height + TEXT_Y, text, "start", "heading"))
        self.height += 22

    def row(self, label: str, value: str, style: str = "value") -> float:
        """Add a row's text; return the top of its strip."""
        top = self.height + STRIP_Y
        self._text(label, value, style)
        self.strips.append(top)
        self.height += ROW
        return top

    def note(self, label: str, value: str) -> None:
        """Add a row that has no marks."""
        self._text(label, value, "missing")
        self.height += STRIP_Y + 4

    def _text(self, label: str, value: str, style: str) -> None:
        y = self.height + TEXT_Y
        self.texts.append(Text(0, y, label, "start", "label"))
        self.texts.append(Text(100, y, value, "end", style))
        self.summary.append(f"{label}: {value}")

    def bar(
        self, start: float, end: float, y: float, height: float, style: str, title: str
    ) -> None:
        """Add a bar between two values."""
        left, right = self.axis.place(start), self.axis.place(end)
        self.shapes.append(Rect(left, y, max(right - left, 0.15), height, style, title))

    def points(self, values: Sequence[float], y: float, style: str, reach: float) -> None:
        """Add points around ``y``, spread by a fixed pattern so that equal ones show."""
        for i, value in enumerate(values):
            shift = ((i * 0.618034) % 1 - 0.5) * 2 * reach
            self.shapes.append(Dot(self.axis.place(value), y + shift, 1.5, style))

    def finish(self) -> Chart:
        """Add the axis below all rows."""
        bottom = self.height
        lines = [(value, "grid") for value, _ in self.axis.ticks]
        if self.marker is not None:
            lines.append((self.marker, "marker"))
        # Only behind marks: a line through a row's text would make it hard to read.
        grid = [
            Line(
                self.axis.place(value),
                top - 2,
                self.axis.place(value),
                top + STRIP_HEIGHT + 2,
                style,
            )
            for value, style in lines
            for top in self.strips
        ]
        self.shapes = [*grid, *self.shapes]
        for value, text in self.axis.ticks:
            x = self.axis.place(value)
            anchor = "start" if x < 4 else "end" if x > 96 else "middle"
            self.texts.append(Text(x, bottom + 15, text, anchor, "tick"))
        self.height += AXIS_HEIGHT
        return self
