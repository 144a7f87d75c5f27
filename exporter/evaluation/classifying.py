"""Which models of an artifact label text, and the labels they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from exporter.artifact import Artifact
from exporter.errors import BenchmarkError
from exporter.evaluation.labels import class_names
from exporter.json_files import read_json

__all__ = ["NO_CLASS", "REFERENCE", "artifact_labels", "choose_variants", "classes_of", "logits_of"]

REFERENCE = "fp32"
"""The model that the others are compared with."""

NO_CLASS = -1
"""The class of logits that are not finite."""

_BASELINE = "baseline"


def choose_variants(artifact: Artifact, asked: Sequence[str]) -> dict[str, Path]:
    """Choose the models, the reference first, which is always among them.

    Raises:
        BenchmarkError: a variant does not exist, or is a baseline.
    """
    models = artifact.models()
    usable = [variant for variant in models if not variant.startswith(_BASELINE)]
    for variant in asked:
        if variant.startswith(_BASELINE):
            raise BenchmarkError(
                f"{variant} has weights drawn at random, for measuring: its answers mean nothing"
            )
        if variant not in usable:
            raise BenchmarkError(
                f"{artifact.folder} has no model {variant!r}; it has: {', '.join(usable)}"
            )
    chosen = [variant for variant in usable if not asked or variant in (*asked, REFERENCE)]
    chosen.sort(key=lambda variant: variant != REFERENCE)
    if not chosen:
        raise BenchmarkError(f"{artifact.folder} has no model to evaluate")
    return {variant: models[variant] for variant in chosen}


def artifact_labels(artifact: Artifact) -> tuple[str, ...] | None:
    """Return the names of the labels, as the artifact's ``config.json`` has them."""
    path = artifact.folder / "config.json"
    return class_names(read_json(path)) if path.is_file() else None


def logits_of(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Pick the logits, float ``[rows, labels]``.

    Raises:
        BenchmarkError: there are none.
    """
    flat = {n: a for n, a in outputs.items() if a.ndim == 2 and a.dtype.kind == "f"}
    name = "logits" if "logits" in flat else next(iter(flat), None)
    if name is None or (name != "logits" and len(flat) > 1) or flat[name].shape[1] < 2:
        shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in outputs.items())
        raise BenchmarkError(
            f"the model classifies no texts: no logits [rows, labels] among its outputs: {shapes}"
        )
    return flat[name]


def classes_of(logits: np.ndarray) -> np.ndarray:
    """Return the label of each row, int64 ``[rows]``."""
    return np.where(np.isfinite(logits).all(axis=1), logits.argmax(axis=1), NO_CLASS)
