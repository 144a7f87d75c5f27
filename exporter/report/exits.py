"""Leaving early: the curves that a calibration left in a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.report.naming import variant_name
from exporter.report.text import clean

__all__ = ["ExitCurve", "ExitPoint", "read_exits"]


@dataclass(frozen=True)
class ExitPoint:
    """One setting: shares from 0 to 1, losses in points, time in proportion to all layers."""

    value: float
    accuracy: float
    interval: tuple[float, float]
    loss: float
    mean_layers: float
    p90_layers: float
    relative_ms: float
    chosen: bool


@dataclass(frozen=True)
class ExitCurve:
    """One model's settings on the data that chose one of them.

    Args:
        name: of the model, for people.
        setting: the input that is set.
        layers: passes that the model makes at most.
        never: value of the setting that makes them all.
        max_loss: accuracy that was allowed to be lost, in points.
        data: name of the data file; ``rows`` of it were used.
        points: the earliest to leave first.
    """

    name: str
    setting: str
    layers: int
    never: float
    max_loss: float
    data: str
    rows: int
    points: tuple[ExitPoint, ...]

    @property
    def title(self) -> str:
        """What it is of."""
        return f"{self.name}, {self.rows:,} rows of {self.data}"

    def label(self, point: ExitPoint) -> str:
        """Return what a point is called."""
        never = point.value == self.never
        name = f"all {self.layers} layers" if never else f"{self.setting} {point.value:g}"
        return f"{name}, chosen" if point.chosen else name


def read_exits(manifest: Mapping[str, Any]) -> tuple[ExitCurve, ...]:
    """Return the curves of a manifest, one for each model that was calibrated.

    Raises:
        KeyError, TypeError, ValueError: the manifest is incomplete.
    """
    early_exit = manifest.get("early_exit")
    if early_exit is None:
        return ()
    return tuple(
        ExitCurve(
            name=variant_name(model["variant"]),
            setting=clean(str(early_exit["input"])),
            layers=int(early_exit["layers"]),
            never=float(early_exit["never"]),
            max_loss=float(calibration["max_loss"]),
            data=clean(str(calibration["data"])),
            rows=int(calibration["rows"]),
            points=tuple(_point(point, calibration["value"]) for point in calibration["curve"]),
        )
        for model in manifest.get("models", ())
        if (calibration := model.get("calibration")) is not None
    )


def _point(values: Mapping[str, Any], chosen: float) -> ExitPoint:
    low, high = values["accuracy_95"]
    return ExitPoint(
        value=float(values["value"]),
        accuracy=float(values["accuracy"]),
        interval=(float(low), float(high)),
        loss=float(values["loss"]),
        mean_layers=float(values["mean_layers"]),
        p90_layers=float(values["p90_layers"]),
        relative_ms=float(values["relative_ms"]),
        chosen=values["value"] == chosen,
    )
