"""The files behind the measurements: their sizes, from records and from manifests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.comparisons import exit_of, is_baseline
from exporter.records import Measurement, ModelFile
from exporter.report.exits import ExitCurve, read_exits
from exporter.report.figures import proportion, variant_order
from exporter.report.naming import variant_name
from exporter.report.text import clean, share, size

__all__ = ["Described", "Model", "describe", "models_of"]

Key = tuple[str, str, str]
"""Artifact, variant and content hash."""


@dataclass(frozen=True)
class Model:
    """One file: a variant of an artifact, with its sizes in bytes.

    Args:
        artifact, variant: which.
        name: for people, with the hash where one name stands for several files.
        file: the file; of several records the one that knows most.
        against_baseline: its file bytes in proportion to the unshared fp32 baseline's.
        ambiguous: whether other content goes by the same artifact and variant.
        coverage: how far its precision reached, in words, from a manifest.
        reference: whether it is what others are compared with.
    """

    artifact: str
    variant: str
    name: str
    file: ModelFile
    against_baseline: float | None
    ambiguous: bool
    coverage: str | None = None
    reference: bool = False


@dataclass(frozen=True)
class Described:
    """What an artifact's manifest adds.

    Args:
        artifact: its name in the records, where the hash of one of its files occurs there.
        matched: whether one does.
        summary: scheme and sizes, in words.
        files: its model files by variant.
        coverage: how far each variant's precision reached, in words.
        exits: of the models that were calibrated to leave early.
    """

    artifact: str
    matched: bool
    summary: str
    files: Mapping[str, ModelFile]
    coverage: Mapping[str, str]
    exits: tuple[ExitCurve, ...] = ()


def describe(manifest: Mapping[str, Any], measurements: Iterable[Measurement]) -> Described:
    """Read what a report needs from a manifest, and find the records that belong to it.

    Args:
        manifest: of an artifact; ``name`` may hold the folder's name.
        measurements: to look the hashes up in.
    """
    contents: Mapping[str, Any] = manifest.get("files", {})
    files: dict[str, ModelFile] = {}
    coverage: dict[str, str] = {}
    for model in manifest.get("models", ()):
        variant, path = model["variant"], model["path"]
        parts = [path, *sorted(name for name in contents if name.startswith(f"{path}_data"))]
        hashes = [contents[part]["sha256"] for part in parts]
        together = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
        files[variant] = ModelFile(
            path=path,
            sha256=hashes[0] if len(hashes) == 1 else together,
            file_bytes=model["file_bytes"],
        )
        if reached := model.get("coverage"):
            coverage[variant] = (
                f"{reached['operations_reached']} of {reached['operations_total']} operations, "
                f"{share(reached['bytes_share'])} of bytes"
            )
    known = {file.sha256 for file in files.values()}
    names = {clean(m.case.artifact): None for m in measurements if m.model.sha256 in known}
    facts = [f"sharing scheme {clean(str(manifest['scheme']))}"] if "scheme" in manifest else []
    for key, word in (("unique_bytes", "unique parameters"), ("unshared_bytes", "unshared")):
        if isinstance(manifest.get(key), int):
            facts.append(f"{size(manifest[key])} {word}")
    return Described(
        artifact=next(iter(names), clean(str(manifest.get("name", "artifact")))),
        matched=bool(names),
        summary=", ".join(facts),
        files=files,
        coverage=coverage,
        exits=read_exits(manifest),
    )


def models_of(
    measurements: Iterable[Measurement], described: Sequence[Described] = ()
) -> list[Model]:
    """Return every file, baselines first, each compared with the baseline it belongs to.

    A case that failed or was not run counts too: its file has a size all the same. Files
    that only a manifest names are added.
    """
    files: dict[Key, ModelFile] = {}
    together: dict[tuple[str, str], dict[Key, None]] = {}
    coverage: dict[Key, str] = {}
    for item in measurements:
        if exit_of(item.case.variant) is not None:  # no file of its own
            continue
        key = (clean(item.case.artifact), item.case.variant, item.model.sha256)
        known = files.get(key)
        if known is None or (known.brotli_bytes is None and item.model.brotli_bytes is not None):
            files[key] = item.model
        together.setdefault((item.run, key[0]), {})[key] = None
    for number, source in enumerate(described):
        for variant, file in source.files.items():
            key = (source.artifact, variant, file.sha256)
            files.setdefault(key, file)
            together.setdefault((f"manifest {number}", source.artifact), {})[key] = None
            if variant in source.coverage:
                coverage[key] = source.coverage[variant]
    baseline_of: dict[Key, Key] = {}
    for keys in together.values():
        if base := next((key for key in keys if key[1] == "baseline"), None):
            baseline_of.update(dict.fromkeys(keys, base))
    contents: dict[tuple[str, str], int] = {}
    for artifact, variant, _ in files:
        contents[artifact, variant] = contents.get((artifact, variant), 0) + 1

    def model(key: Key) -> Model:
        artifact, variant, digest = key
        ambiguous = contents[artifact, variant] > 1
        base = baseline_of.get(key)
        return Model(
            artifact=artifact,
            variant=variant,
            name=variant_name(variant) + (f" #{digest[:6]}" if ambiguous else ""),
            file=files[key],
            against_baseline=base and proportion(files[key].file_bytes, files[base].file_bytes),
            ambiguous=ambiguous,
            coverage=coverage.get(key),
            reference=is_baseline(variant),
        )

    return sorted(map(model, files), key=lambda m: (m.artifact, variant_order(m.variant), m.name))
