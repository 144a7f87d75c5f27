"""Choosing when to leave early, from labelled text. No torch here."""

from exporter.calibration.calibrate import (
    Calibrated,
    CalibrationOptions,
    calibrate_artifact,
)
from exporter.calibration.curve import Point, choose

__all__ = [
    "Calibrated",
    "CalibrationOptions",
    "Point",
    "calibrate_artifact",
    "choose",
]
