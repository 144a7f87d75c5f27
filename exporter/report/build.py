"""Everything a report says, before it takes a form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.errors import BenchmarkError
from exporter.records import Device, Evaluation, Measurement, Record
from exporter.report.caveats import Incident, doubts, incidents, incomparable
from exporter.report.exits import ExitCurve
from exporter.report.figures import Setting, settings_of, variant_order
from exporter.report.headline import Headline, headline
from exporter.report.naming import DeviceNames, variant_name
from exporter.report.side_by_side import SideBySide, side_by_side
from exporter.report.sizes import Described, Model, describe, models_of
from exporter.report.sources import Notice, unique_records
from exporter.report.text import clean, joined

__all__ = ["DeviceLine", "Report", "Section", "build_report"]


@dataclass(frozen=True)
class DeviceLine:
    """One device, the days it was measured, and in how many records it occurs."""

    number: int
    name: str
    device: Device
    timer_ms: float | None
    days: tuple[str, ...]
    records: int


@dataclass(frozen=True)
class Section:
    """One part of the report: an artifact, or some that are set beside the first of them.

    Args:
        artifact: its name, or theirs.
        headline: what to read first.
        models, settings: files, and what was measured.
        evaluations: by data file.
        described: what manifests add.
        against: what ratios are to.
        artifacts: several that are set side by side; empty for one.
        repeated: whether a part with others beside it holds everything of this one.
    """

    artifact: str
    headline: Headline
    models: tuple[Model, ...]
    settings: tuple[Setting, ...]
    evaluations: tuple[tuple[Evaluation, ...], ...]
    described: tuple[Described, ...]
    against: str = "unshared fp32"
    artifacts: tuple[str, ...] = ()
    repeated: bool = False

    @property
    def opponent(self) -> str:
        """What the table of ratios compares with, as its heading says."""
        if self.artifacts:
            return self.artifacts[0]
        found = [c for s in self.settings for row in s.rows for c in row.comparisons]
        if any(comparison.main for comparison in found):
            return "the unshared baseline"
        names = {variant_name(comparison.against) for comparison in found}
        return names.pop() if len(names) == 1 else "each other"

    @property
    def exits(self) -> tuple[ExitCurve, ...]:
        """The models that were calibrated to leave early."""
        return tuple(curve for one in self.described for curve in one.exits)


@dataclass(frozen=True)
class Report:
    """A whole report.

    Args:
        title: of the page.
        tool: version of albert-export that made it.
        days: first and last day of the records.
        sections: one per artifact.
        side_by_side: one per group of artifacts that took turns in the same runs.
        devices: every device.
        incidents, doubts, incomparable, notices: what to know before trusting the figures.
        commands: that made the records, each with the devices it ran on.
        command: that made this report.
        records: how many were used.
    """

    title: str
    tool: str
    days: tuple[str, ...]
    sections: tuple[Section, ...]
    side_by_side: tuple[Section, ...]
    devices: tuple[DeviceLine, ...]
    incidents: tuple[Incident, ...]
    doubts: tuple[tuple[str, str], ...]
    incomparable: tuple[str, ...]
    notices: tuple[Notice, ...]
    commands: tuple[tuple[str, str], ...]
    command: str | None
    records: int

    @property
    def parts(self) -> tuple[Section, ...]:
        """The sections that a reader sees, in order; none says what another one says."""
        return (*self.side_by_side, *(part for part in self.sections if not part.repeated))


def build_report(
    records: Iterable[Record],
    *,
    command: str | None = None,
    manifests: Sequence[Mapping[str, Any]] = (),
    notices: Sequence[Notice] = (),
    title: str | None = None,
) -> Report:
    """Derive everything a report says from records.

    Args:
        records: measurements and evaluations of any number of devices and days; each counts
            once.
        command: the command line that makes this report.
        manifests: of artifacts: adds files that were not measured, and coverage.
        notices: what reading the records left out.
        title: of the page; names the artifacts by default.

    Raises:
        BenchmarkError: there is no record, or a manifest lacks what every manifest has.
    """
    from exporter import __version__

    kept = unique_records(records)
    if not kept:
        raise BenchmarkError("there is no record to report; make some with: albert-export bench")
    measurements = [record for record in kept if isinstance(record, Measurement)]
    evaluations = [record for record in kept if isinstance(record, Evaluation)]
    try:
        described = [describe(manifest, measurements) for manifest in manifests]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BenchmarkError(f"a manifest is incomplete: {error!r}; export again") from error
    names = DeviceNames(measurements)
    settings = settings_of(measurements, names)
    models = models_of(measurements, described)
    artifacts = dict.fromkeys(
        [model.artifact for model in models] + [clean(e.artifact) for e in evaluations]
    )
    beside = side_by_side(measurements, models, names)
    return Report(
        title=clean(title) if title else f"{joined([*artifacts])}: measurements",
        tool=__version__,
        days=tuple(sorted({record.created[:10] for record in kept})),
        sections=tuple(
            _section(artifact, models, settings, evaluations, described, beside)
            for artifact in artifacts
        ),
        side_by_side=tuple(_joint_section(group, described) for group in beside),
        devices=tuple(_device_lines(names)),
        incidents=tuple(incidents(measurements, names)),
        doubts=tuple(doubts(measurements, settings, names)),
        incomparable=tuple(incomparable(measurements, evaluations, settings, described, names)),
        notices=(*notices, *_manifest_notices(described)),
        commands=tuple(_commands(kept, names)),
        command=clean(command) if command else None,
        records=len(kept),
    )


def _section(
    artifact: str,
    models: Sequence[Model],
    settings: Sequence[Setting],
    evaluations: Sequence[Evaluation],
    described: Sequence[Described],
    beside: Sequence[SideBySide],
) -> Section:
    models = tuple(m for m in models if m.artifact == artifact)
    settings = tuple(s for s in settings if s.workload.artifact == artifact)
    groups: dict[tuple[str, str, int], dict[tuple[str, str], Evaluation]] = {}
    for item in sorted(evaluations, key=lambda e: e.created):
        if clean(item.artifact) == artifact:
            group = groups.setdefault((item.data, item.data_sha256, item.rows), {})
            group[item.variant, item.model.sha256] = item  # the same file: the latest counts
    grouped = tuple(
        tuple(sorted(group.values(), key=lambda e: variant_order(e.variant)))
        for group in groups.values()
    )
    flat = [item for group in grouped for item in group]
    return Section(
        artifact=artifact,
        headline=headline(artifact, models, settings, flat),
        models=models,
        settings=settings,
        evaluations=grouped,
        described=tuple(d for d in described if d.artifact == artifact),
        repeated=not flat and _is_repeated(models, settings, beside),
    )


def _is_repeated(
    models: Sequence[Model], settings: Sequence[Setting], beside: Sequence[SideBySide]
) -> bool:
    """Whether a single variant, measured beside other artifacts only, is all there is."""
    joint = {setting.run for group in beside for setting in group.settings}
    return len({model.variant for model in models}) == 1 and all(
        setting.run in joint for setting in settings
    )


def _joint_section(group: SideBySide, described: Sequence[Described]) -> Section:
    return Section(
        artifact=group.title,
        headline=group.headline,
        models=group.models,
        settings=group.settings,
        evaluations=(),
        described=tuple(d for d in described if d.artifact in group.artifacts),
        against=group.artifacts[0],
        artifacts=group.artifacts,
    )


def _device_lines(names: DeviceNames) -> Iterable[DeviceLine]:
    for device, items in names.devices.items():
        steps = [s for m in items if (s := m.device.timer_resolution_ms) is not None]
        yield DeviceLine(
            number=names.number(device),
            name=names.name(device),
            device=device,
            timer_ms=max(steps, default=None),
            days=tuple(sorted({item.created[:10] for item in items})),
            records=len(items),
        )


def _manifest_notices(described: Sequence[Described]) -> Iterable[Notice]:
    for source in described:
        if not source.matched:
            yield Notice(source.artifact, "no record measures a file of this artifact")


def _commands(records: Sequence[Record], names: DeviceNames) -> Iterable[tuple[str, str]]:
    """Yield each command that made records, with the devices it ran on."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        if record.command:
            places = found.setdefault(clean(record.command), {})
            if isinstance(record, Measurement):
                places[names.name(record.device)] = None
    return ((command, joined(list(places)) if places else "") for command, places in found.items())
