"""What each model takes on the wire: gzip and brotli, remembered by content."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from exporter.atomic_writing import write_atomically
from exporter.benchmark.subjects import Subject
from exporter.comparisons import is_baseline
from exporter.errors import ArtifactError
from exporter.transfer import (
    BROTLI_QUALITY,
    GZIP_LEVEL,
    TransferBytes,
    measure_transfer,
)

__all__ = ["LARGEST_BASELINE_BYTES", "with_wire_bytes"]

LARGEST_BASELINE_BYTES = 100_000_000
"""Baselines beyond are not compressed unless asked for: 350 MB take some 15 seconds."""


def with_wire_bytes(
    subjects: Sequence[Subject],
    folder: Path,
    *,
    all_sizes: bool = False,
    progress: Callable[[str], None] = lambda step: None,
    notice: Callable[[str], None] = lambda text: None,
    measure: Callable[[Sequence[Path], Callable[[str], None]], TransferBytes] = measure_transfer,
) -> list[Subject]:
    """Return ``subjects`` with their bytes on the wire.

    Args:
        subjects: the files.
        folder: cache folder; figures are kept there by the content's hash.
        all_sizes: compress large baselines as well.
        progress: told what is being compressed.
        notice: told what is left out.
        measure: compresses the files of a model.
    """
    done = []
    for subject in subjects:
        large = is_baseline(subject.variant) and subject.model.file_bytes > LARGEST_BASELINE_BYTES
        cached = folder / "transfer" / f"{subject.model.sha256}.json"
        sizes = _read(cached)
        if sizes is None and large and not all_sizes:
            notice(
                f"{subject.artifact}: {subject.variant} "
                f"({subject.model.file_bytes / 1e6:,.0f} MB) is not compressed to tell its bytes "
                "on the wire; --transfer does that"
            )
        elif sizes is None:
            name = f"{subject.artifact} {subject.variant}"
            sizes = measure(subject.files, lambda step, name=name: progress(f"{name}: {step}"))  # type: ignore[misc]
            _write(cached, sizes)
        model = subject.model
        if sizes is not None:
            model = msgspec.structs.replace(
                model, gzip_bytes=sizes.gzip_bytes, brotli_bytes=sizes.brotli_bytes
            )
        done.append(replace(subject, model=model))
    return done


def _levels() -> dict[str, int]:
    return {"brotli_quality": BROTLI_QUALITY, "gzip_level": GZIP_LEVEL}


def _read(path: Path) -> TransferBytes | None:
    """What was remembered at these levels; anything else counts as nothing."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if {key: values[key] for key in _levels()} != _levels():
            return None
        return TransferBytes(int(values["brotli_bytes"]), int(values["gzip_bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, sizes: TransferBytes) -> None:
    """Remember; a folder that cannot be written costs the next bench some seconds, no more."""
    with suppress(ArtifactError):
        write_atomically(path, json.dumps(sizes.to_dict() | _levels()).encode())
