"""Artifact and labelled text → how often each of its models is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from exporter import __version__
from exporter.artifact import Artifact
from exporter.comparisons import exit_name, exit_of
from exporter.early_exit import LAYERS_USED
from exporter.evaluation.classifying import (
    NO_CLASS,
    REFERENCE,
    artifact_labels,
    choose_variants,
    classes_of,
    logits_of,
)
from exporter.evaluation.examples import Examples, read_examples
from exporter.evaluation.labels import Truth, resolve_labels
from exporter.evaluation.texts import EncodedText, TextEncoder
from exporter.exit_setting import ExitSetting, calibrated_setting
from exporter.inputs import Feeds, ModelInputs
from exporter.records import Evaluation, LayersUsed, ModelFile, to_json
from exporter.runtimes.cpu import CpuSession
from exporter.scores import Comparison, compare_labels, wilson_interval

__all__ = ["Evaluated", "EvaluationOptions", "EvaluationReport", "evaluate_artifact"]

Progress = Callable[[str, int, int], None]
"""Called with the variant, how many examples there are, and how many of them are done."""


@dataclass(frozen=True)
class EvaluationOptions:
    """What to evaluate, and how.

    Args:
        text_column, label_column: names in the data file.
        variants: models to evaluate; none: all but the baselines. The reference, ``fp32``, is
            always among them.
        batch: texts per run. 1 is how single texts are served; with more, an int8 model's
            result for a text depends a little on what else is in its batch.
        limit: only so many examples, evenly spread over the file.
        threads: compute threads.
        command: the command line, for the records.
    """

    text_column: str = "text"
    label_column: str = "label"
    variants: Sequence[str] = ()
    batch: int = 1
    limit: int | None = None
    threads: int = 1
    command: str | None = None


@dataclass(frozen=True)
class Evaluated:
    """One model: its record, and the comparison with the reference where there is one."""

    record: Evaluation
    comparison: Comparison | None = None

    def summary(self) -> dict[str, Any]:
        """Return what follows from the record and the comparison, as plain JSON values."""
        paired = self.comparison
        return {
            "variant": self.record.variant,
            "accuracy": self.record.accuracy,
            "difference": paired.difference if paired else None,
            "difference_95": list(paired.interval) if paired else None,
            "only_reference_right": paired.only_reference if paired else None,
            "only_this_right": paired.only_this if paired else None,
        }


@dataclass(frozen=True)
class EvaluationReport:
    """All models on one data file.

    Args:
        models: the reference first.
        truth: what the labels mean.
        notices: what a person should know.
    """

    models: tuple[Evaluated, ...]
    truth: Truth
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; shares are from 0 to 1."""
        return {
            "records": [json.loads(to_json(model.record)) for model in self.models],
            "summary": [model.summary() for model in self.models],
            "labels": dict(zip(self.truth.names, self.truth.counts, strict=True)),
            "notices": list(self.notices),
        }


def evaluate_artifact(
    artifact: Artifact,
    data: Path,
    options: EvaluationOptions | None = None,
    progress: Progress = lambda variant, total, done: None,
) -> EvaluationReport:
    """Label the examples of ``data`` with each model, and count.

    Raises:
        BenchmarkError: the data file, its labels or the tokenizer cannot be used, the
            models are no classifiers, or a variant does not exist.
        ExportError: onnxruntime does not load or run a model.
    """
    options = options or EvaluationOptions()
    variants = choose_variants(artifact, options.variants)
    encoder = TextEncoder.load(artifact)
    names = artifact_labels(artifact)
    examples = read_examples(
        data,
        text_column=options.text_column,
        label_column=options.label_column,
        limit=options.limit,
    )
    texts = encoder.encode(examples)
    total = len(texts)
    truth: Truth | None = None
    labelled: dict[str, np.ndarray] = {}
    layers: dict[str, LayersUsed] = {}
    for variant, path in variants.items():
        classifier = _Classifier(path, encoder, options, artifact.inputs)
        if truth is None:
            # Before the long run: a label that the model does not know is told at once.
            count = classifier.logits(texts[:1]).shape[1]
            truth = resolve_labels(examples, names, count)
        labelled[variant] = classes_of(classifier.logits(texts, partial(progress, variant, total)))
        if (setting := calibrated_setting(artifact, variant)) is not None:
            name = exit_name(variant)
            logits = classifier.logits(texts, partial(progress, name, total), setting.feeds)
            labelled[name], layers[name] = classes_of(logits), classifier.layers_used(setting)
    assert truth is not None
    models = []
    for variant, classes in labelled.items():
        comparison = None
        if variant != REFERENCE and REFERENCE in labelled:
            comparison = compare_labels(classes, labelled[REFERENCE], truth.classes)
        record = _record(artifact, variant, examples, truth, classes, comparison, options)
        if variant in layers:
            record = msgspec.structs.replace(record, layers=layers[variant])
        models.append(Evaluated(record, comparison))
    notices = _notices(texts, encoder, labelled, truth)
    return EvaluationReport(tuple(models), truth, tuple(notices))


class _Classifier:
    """One loaded model that gives logits ``[rows, classes]``."""

    def __init__(
        self, path: Path, encoder: TextEncoder, options: EvaluationOptions, inputs: ModelInputs
    ) -> None:
        self._session = CpuSession(path, threads=options.threads, inputs=inputs)
        self._encoder, self._batch = encoder, options.batch
        self._layers: list[np.ndarray] = []

    def logits(
        self,
        texts: Sequence[EncodedText],
        progress: Callable[[int], None] = lambda done: None,
        settings: Feeds | None = None,
    ) -> np.ndarray:
        """Run all texts; return float ``[rows, classes]`` in their order."""
        done, result = 0, np.empty((len(texts), 0))
        self._layers = []
        for batch in self._encoder.batches(texts, self._batch):
            outputs = self._session.run(batch.feeds | (settings or {}))
            logits = logits_of(outputs)
            if LAYERS_USED in outputs:
                self._layers.append(outputs[LAYERS_USED][: len(batch.rows)])
            if not done:
                result = np.empty((len(texts), logits.shape[1]), logits.dtype)
            result[list(batch.rows)] = logits[: len(batch.rows)]
            done += len(batch.rows)
            progress(done)
        return result

    def layers_used(self, setting: ExitSetting) -> LayersUsed:
        """Summarize the passes of the latest texts."""
        return setting.used(np.concatenate(self._layers))


def _record(
    artifact: Artifact,
    variant: str,
    examples: Examples,
    truth: Truth,
    classes: np.ndarray,
    comparison: Comparison | None,
    options: EvaluationOptions,
) -> Evaluation:
    file = exit_of(variant) or variant
    model = next(m for m in artifact.manifest["models"] if m["variant"] == file)
    rows, correct = len(classes), int(np.sum(classes == truth.classes))
    return Evaluation(
        tool=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        artifact=artifact.folder.resolve().name,
        variant=variant,
        model=ModelFile(
            path=model["path"],
            sha256=artifact.digest_of(model["path"]),
            file_bytes=model["file_bytes"],
        ),
        data=examples.name,
        data_sha256=examples.sha256,
        rows=rows,
        correct=correct,
        majority=truth.majority,
        interval_95=wilson_interval(correct, rows),
        batch=options.batch,
        agreement=comparison.agreement if comparison else None,
        only_reference=comparison.only_reference if comparison else None,
        only_this=comparison.only_this if comparison else None,
        reference=REFERENCE if comparison else None,
        command=options.command,
    )


def _notices(
    texts: Sequence[EncodedText],
    encoder: TextEncoder,
    labelled: Mapping[str, np.ndarray],
    truth: Truth,
) -> list[str]:
    notices = [truth.notice] if truth.notice else []
    if cut := sum(text.cut for text in texts):
        notices.append(f"{cut:,} of {len(texts):,} texts were cut to {encoder.limit} tokens")
    for variant, classes in labelled.items():
        if unusable := int(np.sum(classes == NO_CLASS)):
            share = f"{unusable:,} of {len(texts):,} texts"
            notices.append(f"{variant}: {share} gave no finite logits, which counts as wrong")
    return notices
