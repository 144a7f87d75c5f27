"""Reference vectors: a few inputs of an artifact and the source's outputs, as JSON.

A device without PyTorch can so check that it computes the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.errors import ArtifactError
from exporter.inputs import Feeds
from exporter.packed_arrays import pack_array, unpack_array
from exporter.records import Check
from exporter.verification import compare, judge_relative

__all__ = [
    "REFERENCE_NAME",
    "ReferenceCase",
    "check_outputs",
    "read_reference",
    "reference_document",
]

REFERENCE_NAME = "reference.json"
REFERENCE_SCHEMA = 1


@dataclass(frozen=True)
class ReferenceCase:
    """One set of inputs and the outputs that belong to it."""

    name: str
    feeds: Feeds
    outputs: Mapping[str, np.ndarray]


def reference_document(cases: Sequence[ReferenceCase]) -> dict[str, Any]:
    """Return the content of ``reference.json``."""
    return {
        "schema": REFERENCE_SCHEMA,
        "cases": [
            {
                "name": case.name,
                "inputs": {name: pack_array(array) for name, array in case.feeds.items()},
                "outputs": {name: pack_array(array) for name, array in case.outputs.items()},
            }
            for case in cases
        ],
    }


def read_reference(path: Path) -> list[ReferenceCase]:
    """Read what :func:`reference_document` describes.

    Raises:
        ArtifactError: the file is missing, unreadable or of another schema version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != REFERENCE_SCHEMA:
            raise ArtifactError(
                f"{path} has schema {document['schema']!r}; this version reads "
                f"{REFERENCE_SCHEMA}; export the model again"
            )
        return [
            ReferenceCase(
                name=str(case["name"]),
                feeds={name: unpack_array(packed) for name, packed in case["inputs"].items()},
                outputs={name: unpack_array(packed) for name, packed in case["outputs"].items()},
            )
            for case in document["cases"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error!r}; export again") from error


def check_outputs(
    cases: Sequence[ReferenceCase],
    run: Callable[[Feeds], Mapping[str, np.ndarray]],
    tolerance: float,
) -> Check:
    """Run every case and compare, by the largest relative error of any output.

    Args:
        cases: the reference vectors; without any the check is not run.
        run: feeds → named outputs.
        tolerance: largest relative error that passes.
    """
    if not cases:
        return Check()
    reports = tuple(compare(case.name, case.outputs, run(case.feeds)) for case in cases)
    result = judge_relative(reports, tolerance).to_dict()
    return Check(
        status=result["verdict"],
        relative_error=result["relative_error"],
        max_abs_error=result["worst_abs_error"],
        tolerance=tolerance,
    )
