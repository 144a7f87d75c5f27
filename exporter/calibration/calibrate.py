"""Artifact and labelled text → the setting to leave early with, in the manifest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artifact import Artifact
from exporter.calibration.curve import Point, choose, measure_point
from exporter.early_exit import LAYERS_USED, RULES, ExitRule
from exporter.errors import ArtifactError, BenchmarkError
from exporter.evaluation.classifying import artifact_labels, choose_variants, classes_of, logits_of
from exporter.evaluation.examples import Examples, read_examples
from exporter.evaluation.labels import Truth, resolve_labels
from exporter.evaluation.texts import TextEncoder
from exporter.inputs import Feeds
from exporter.runtimes.cpu import CpuSession

__all__ = ["Calibrated", "CalibrationOptions", "calibrate_artifact"]

Progress = Callable[[str, int, int], None]
"""Called with a model's place, ``int8 (2 of 4)``, how many examples there are, and how many of
them are done; first with none."""


@dataclass(frozen=True)
class CalibrationOptions:
    """How to choose.

    Args:
        max_loss: accuracy that may be lost against the full depth, in points.
        text_column, label_column: names in the data file.
        variants: models to calibrate, each by itself; none: all but the baselines.
        values: settings to try; none: those of the rule.
        limit: only so many examples, evenly spread over the file.
        threads: compute threads.

    Raises:
        BenchmarkError: ``max_loss`` is negative.
    """

    max_loss: float = 0.5
    text_column: str = "text"
    label_column: str = "label"
    variants: Sequence[str] = ()
    values: Sequence[float] = ()
    limit: int | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if not self.max_loss >= 0:
            raise BenchmarkError(f"the largest loss must be 0 points or more, not {self.max_loss}")


@dataclass(frozen=True)
class Calibrated:
    """One model's curve, and the point taken.

    Args:
        variant: the model.
        points: one for each setting, the earliest to leave first; the full depth is the last.
        chosen: one of them.
    """

    variant: str
    points: tuple[Point, ...]
    chosen: Point

    def to_dict(self, examples: Examples, options: CalibrationOptions) -> dict[str, Any]:
        """Return what the manifest says, as plain JSON values."""
        return {
            "value": self.chosen.value,
            "max_loss": options.max_loss,
            "data": examples.name,
            "data_sha256": examples.sha256,
            "rows": len(examples.rows),
            "runtime": "cpu",
            "threads": options.threads,
            "curve": [point.to_dict() for point in self.points],
        }


def calibrate_artifact(
    artifact: Artifact,
    data: Path,
    options: CalibrationOptions | None = None,
    progress: Progress = lambda place, total, done: None,
) -> tuple[Artifact, tuple[Calibrated, ...]]:
    """Try settings on the examples of ``data``, choose one for each model, and write it down.

    Every text goes through all settings before the next one does, one text at a time and in an
    order drawn anew for each: drift of the machine's speed, and the cost of being the first to
    meet a text of another length, meet all settings alike. Data that decided a setting flatters
    it: report its accuracy on other data.

    Returns:
        The artifact with the new manifest: ``calibration`` in the record of each model.

    Raises:
        BenchmarkError: the artifact cannot leave early or gives no labels; the data file, its
            labels or the tokenizer cannot be used; a variant does not exist; the rule knows no
            such value.
        ArtifactError: the manifest cannot be written.
    """
    options = options or CalibrationOptions()
    rule, values = _settings(artifact, options.values)
    if not os.access(artifact.folder, os.W_OK):  # said now, not after minutes of measuring
        raise ArtifactError(f"cannot write to {artifact.folder}; calibrate a copy of it")
    encoder = TextEncoder.load(artifact)
    examples = read_examples(
        data,
        text_column=options.text_column,
        label_column=options.label_column,
        limit=options.limit,
    )
    texts = encoder.encode(examples)
    feeds = [batch.feeds for batch in encoder.batches(texts, 1)]
    results = []
    models = {
        variant: path
        for variant, path in choose_variants(artifact, options.variants).items()
        if not options.variants or variant in options.variants
    }
    for number, (variant, path) in enumerate(models.items(), start=1):
        session = CpuSession(path, threads=options.threads, inputs=artifact.inputs)
        labels = logits_of(session.run(feeds[0])).shape[1]
        truth = resolve_labels(examples, artifact_labels(artifact), labels)
        tried = values if options.values else _distinct(values, rule, labels)
        place = f"{variant} ({number} of {len(models)})"
        points = _curve(session, feeds, rule, tried, truth, place, progress)
        results.append(Calibrated(variant, points, choose(points, options.max_loss)))
    by_variant = {result.variant: result.to_dict(examples, options) for result in results}
    records = [
        {**record, "calibration": by_variant.get(record["variant"], record.get("calibration"))}
        for record in artifact.manifest["models"]
    ]
    return artifact.with_manifest({**artifact.manifest, "models": records}), tuple(results)


def _settings(artifact: Artifact, asked: Sequence[float]) -> tuple[ExitRule, list[float]]:
    """Return the rule and the values to try, the earliest to leave first, the full depth last."""
    early_exit = artifact.manifest.get("early_exit")
    if early_exit is None:
        raise BenchmarkError(
            f"{artifact.folder} cannot leave early; export the model again with --early-exit"
        )
    rule = RULES[early_exit["rule"]]
    for value in asked:
        rule.check(value)
    values = sorted({*(asked or rule.values)} - {rule.never}, reverse=not rule.never)
    if rule.name == "patience":
        values = [value for value in values if value < early_exit["layers"]]
    return rule, [*values, rule.never]


def _distinct(values: Sequence[float], rule: ExitRule, labels: int) -> list[float]:
    """Leave out thresholds that do what 0 does: some label has a probability of 1/labels."""
    if rule.name != "confidence":
        return [*values]
    return [value for value in values if not 0 < value <= 1 / labels]


def _curve(
    session: CpuSession,
    feeds: Sequence[Feeds],
    rule: ExitRule,
    values: Sequence[float],
    truth: Truth,
    place: str,
    progress: Progress,
) -> tuple[Point, ...]:
    shape = (len(values), len(feeds))
    classes, layers, times = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
    settings = [rule.feeds(value) for value in values]
    progress(place, len(feeds), 0)
    for setting in settings:  # the first runs of a session are slow
        session.run(feeds[0] | setting)
    order = np.random.default_rng(0)  # the same orders each time
    for row, text in enumerate(feeds):
        for number in order.permutation(len(settings)):
            given = text | settings[number]
            start = time.perf_counter()
            outputs = session.run(given)
            times[number, row] = (time.perf_counter() - start) * 1e3
            classes[number, row] = classes_of(logits_of(outputs))[0]
            layers[number, row] = outputs[LAYERS_USED][0]
        progress(place, len(feeds), row + 1)
    full = classes[-1], times[-1]
    return tuple(
        measure_point(value, classes[number], layers[number], times[number], full, truth.classes)
        for number, value in enumerate(values)
    )
