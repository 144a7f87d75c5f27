"""Artifacts that took turns in one run, set beside the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from exporter.comparisons import is_baseline
from exporter.records import Measurement
from exporter.report.figures import Comparison, Setting, joint_name, proportion, settings_of
from exporter.report.headline import Headline, verdict_note
from exporter.report.naming import DeviceNames
from exporter.report.sizes import Model
from exporter.report.text import clean, count, joined, ratio

__all__ = ["SideBySide", "side_by_side"]


@dataclass(frozen=True)
class SideBySide:
    """Some artifacts, the first of which the others are compared with.

    Args:
        title: their names.
        artifacts: them, in the order they were measured in.
        models: their files, without unshared baselines.
        settings: rows of all artifacts, each beside the first one's same variant.
        headline: what that comes to.
    """

    title: str
    artifacts: tuple[str, ...]
    models: tuple[Model, ...]
    settings: tuple[Setting, ...]
    headline: Headline


def side_by_side(
    measurements: Sequence[Measurement], models: Sequence[Model], names: DeviceNames
) -> list[SideBySide]:
    """Find the artifacts that were measured in the same runs, each such group once."""
    runs: dict[str, list[Measurement]] = {}
    for item in measurements:
        if not is_baseline(item.case.variant):
            runs.setdefault(item.run, []).append(item)
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for items in runs.values():
        artifacts = tuple(dict.fromkeys(clean(item.case.artifact) for item in items))
        if len(artifacts) > 1:
            groups.setdefault(artifacts, []).extend(items)
    return [_group(artifacts, items, models, names) for artifacts, items in groups.items()]


def _group(
    artifacts: tuple[str, ...],
    items: Sequence[Measurement],
    models: Sequence[Model],
    names: DeviceNames,
) -> SideBySide:
    title = joined([*artifacts])
    measured = {(clean(m.case.artifact), m.case.variant, m.model.sha256) for m in items}
    mine = [m for m in models if (m.artifact, m.variant, m.file.sha256) in measured]
    settings = settings_of(items, names, together=title)
    return SideBySide(
        title=title,
        artifacts=artifacts,
        models=tuple(_beside_first(mine, artifacts)),
        settings=tuple(settings),
        headline=_headline(title, settings),
    )


def _beside_first(models: Sequence[Model], artifacts: Sequence[str]) -> Iterable[Model]:
    """Yield the files in the artifacts' order, each in proportion to the first one's."""
    variants = {model.variant for model in models}
    firsts = {m.variant: m for m in models if m.artifact == artifacts[0]}
    for variant in dict.fromkeys(model.variant for model in models):
        same = [model for model in models if model.variant == variant]
        for model in sorted(same, key=lambda m: artifacts.index(m.artifact)):
            first, is_first = firsts.get(variant), model.artifact == artifacts[0]
            suffix = f" #{model.file.sha256[:6]}" if model.ambiguous else ""
            size = None if first is None or is_first else first.file.file_bytes
            yield replace(
                model,
                name=joint_name(model.artifact, variant, variants) + suffix,
                against_baseline=proportion(model.file.file_bytes, size),
                reference=is_first,
            )


def _headline(title: str, settings: Sequence[Setting]) -> Headline:
    """Say of every file how it compares, one sentence for what it is compared with."""
    found: dict[str, dict[str, list[Comparison]]] = {}
    for setting in settings:
        for row in setting.rows:
            if row.main is not None and row.trusted:
                found.setdefault(row.main.against, {}).setdefault(row.name, []).append(row.main)
    sentences = [
        f"Against {first}: {'; '.join(_part(name, known) for name, known in others.items())}."
        for first, others in found.items()
    ]
    if not sentences:
        return Headline(title, "No two of them were measured beside each other.", (), (), None)
    details = [*sentences[1:], f"Measured in {count(len(settings), 'setting')}, in turns."]
    return Headline(title, sentences[0], tuple(details), (), None)


def _part(name: str, comparisons: Sequence[Comparison]) -> str:
    parts = [f"{ratio(comparisons[0].file)} the bytes"]
    times = sorted((c for c in comparisons if c.time), key=lambda c: c.time.value)  # type: ignore[union-attr]
    if times:
        ends = dict.fromkeys(ratio(c.time.value) for c in (times[0], times[-1]) if c.time)
        parts.append(f"{' to '.join(ends)} the latency{verdict_note([c.verdict for c in times])}")
    return f"{name} {', '.join(parts)}"
