"""Leaving early: charts and tables of a calibration."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.report.drawing import Chart, Dot, Line, linear_axis
from exporter.report.exits import ExitCurve, ExitPoint
from exporter.report.tables import Cell, Column, Group, Table
from exporter.report.text import share

__all__ = ["exit_charts", "exit_table"]


def exit_charts(curve: ExitCurve) -> tuple[Chart, Chart]:
    """Draw layers used and accuracy side by side: two charts with a row per setting."""
    layers = Chart("Layers used on average", linear_axis(curve.layers, lambda n: f"{n:g}"))
    low = min(point.interval[0] for point in curve.points)
    high = max(point.interval[1] for point in curve.points)
    full = curve.points[-1].accuracy
    rates = Chart("Accuracy, with its 95 % interval", linear_axis(high, share, low), marker=full)
    for point in curve.points:
        label, tone = curve.label(point), "model" if point.chosen else "reference"
        top = layers.row(label, f"{point.mean_layers:.2f}")
        layers.bar(0, point.mean_layers, top, 10, tone, f"{label}: p90 {point.p90_layers:g}")
        top = rates.row(label, share(point.accuracy))
        left, right = map(rates.axis.place, point.interval)
        title = f"{label}: {point.loss:+.2f} points lost"
        rates.shapes.append(Line(left, top + 5, right, top + 5, f"{tone} interval", title))
        dot = Dot(rates.axis.place(point.accuracy), top + 5, 4, f"{tone} estimate", title)
        rates.shapes.append(dot)
    return layers.finish(), rates.finish()


def exit_table(curves: Sequence[ExitCurve]) -> Table:
    """Tabulate the curves, a group per model."""
    columns = (
        Column("name", "setting", numeric=False),
        Column("accuracy", "accuracy"),
        Column("interval", "95 % interval"),
        Column("loss", "points lost"),
        Column("mean_layers", "layers, mean"),
        Column("p90_layers", "p90"),
        Column("relative_ms", "time of all layers"),
    )
    groups = [
        Group(
            f"{curve.title}; at most {curve.max_loss:g} points were to be lost",
            tuple(_cells(curve, point) for point in curve.points),
        )
        for curve in curves
    ]
    return Table("Leaving early", columns, tuple(groups))


def _cells(curve: ExitCurve, point: ExitPoint) -> tuple[Cell, ...]:
    low, high = point.interval
    return (
        Cell(curve.label(point)),
        Cell(share(point.accuracy), point.accuracy),
        Cell(f"{low * 100:.1f}–{high * 100:.1f} %"),
        Cell(f"{point.loss:+.2f}", point.loss),
        Cell(f"{point.mean_layers:.2f}", point.mean_layers),
        Cell(f"{point.p90_layers:g}", point.p90_layers),
        Cell(f"{point.relative_ms:.2f}×", point.relative_ms),
    )
