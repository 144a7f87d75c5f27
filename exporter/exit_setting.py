"""When the models of an artifact leave early: the setting that was calibrated for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exporter.artifact import Artifact
from exporter.early_exit import RULES, ExitRule
from exporter.errors import BenchmarkError
from exporter.inputs import Feeds
from exporter.records import LayersUsed

__all__ = ["ExitSetting", "calibrated_setting"]


@dataclass(frozen=True)
class ExitSetting:
    """When a model of an artifact leaves, as it was calibrated.

    Args:
        rule: what decides.
        value: of its setting.
        layers: passes that the model makes at most.
    """

    rule: ExitRule
    value: float
    layers: int

    @property
    def name(self) -> str:
        """The input that is set."""
        return self.rule.setting.name

    @property
    def feeds(self) -> Feeds:
        """The input, to run with."""
        return self.rule.feeds(self.value)

    def used(self, layers: np.ndarray) -> LayersUsed:
        """Summarize how many passes were used, ``[rows]``."""
        return LayersUsed(
            setting=self.name,
            value=self.value,
            mean=float(layers.mean()),
            p90=float(np.percentile(layers, 90)),
            of=self.layers,
        )


def calibrated_setting(artifact: Artifact, variant: str) -> ExitSetting | None:
    """Return the setting that was chosen for a model; ``None``: it was not calibrated.

    Raises:
        BenchmarkError: the artifact has no such model.
    """
    records = {record["variant"]: record for record in artifact.manifest["models"]}
    if variant not in records:
        raise BenchmarkError(
            f"{artifact.folder} has no model {variant!r}; it has: {', '.join(records)}"
        )
    early_exit = artifact.manifest.get("early_exit")
    calibration = records[variant].get("calibration")
    if early_exit is None or calibration is None:
        return None
    value = float(calibration["value"])
    return ExitSetting(RULES[early_exit["rule"]], value, int(early_exit["layers"]))
