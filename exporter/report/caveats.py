"""What a reader must know before trusting or comparing figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.ratios import sessions_note
from exporter.records import Evaluation, Flag, Measurement
from exporter.report.figures import Setting
from exporter.report.naming import DeviceNames, Workload, variant_name, where
from exporter.report.sizes import Described
from exporter.report.text import FLAGS, clean, count, joined

__all__ = ["Incident", "doubts", "incidents", "incomparable"]

_SHOWN = 6
"""Subjects that a sentence names before it counts the rest."""


@dataclass(frozen=True)
class Incident:
    """A case that failed, was not run, or whose outputs were wrong.

    Args:
        kind: ``failed``, ``not run`` or ``failed check``.
        subject: which case, where and when.
        text: what happened.
    """

    kind: str
    subject: str
    text: str


def incidents(measurements: Iterable[Measurement], names: DeviceNames) -> list[Incident]:
    """List the cases without figures and the self-checks that failed, the worst first."""
    found: dict[Incident, None] = {}
    for item in measurements:
        subject = _subject(item, names)
        if item.status != "measured":
            memory = "likely out of memory: " if "likely out of memory" in item.flags else ""
            found[Incident(item.status, subject, memory + clean(item.error or ""))] = None
        if item.check.status == "failed":
            found[Incident("failed check", subject, _check_text(item))] = None
    order = ("failed check", "failed", "not run")
    return sorted(found, key=lambda incident: order.index(incident.kind))


def _check_text(item: Measurement) -> str:
    error, limit = item.check.relative_error, item.check.tolerance
    if error is None or limit is None:
        return "its outputs are not those of the reference vectors"
    return f"relative error {error:.2g} where {limit:.2g} is allowed: do not ship this file there"


def _subject(item: Measurement, names: DeviceNames) -> str:
    case = item.case
    return (
        f"{clean(case.artifact)} {variant_name(case.variant)} on {names.name(item.device)}, "
        f"{where(item.device, case)}, {Workload.of(case)}, {item.created[:10]}"
    )


def _together(items: Iterable[Measurement], names: DeviceNames) -> Iterable[str]:
    """Name cases by what they have in common, with their variants."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for item in items:
        place = f"{names.name(item.device)}, {where(item.device, item.case)}"
        rest = f"{Workload.of(item.case)}, {item.created[:10]}"
        group = groups.setdefault((clean(item.case.artifact), f"on {place}, {rest}"), {})
        group[variant_name(item.case.variant)] = None
    for (artifact, place), variants in groups.items():
        yield f"{artifact} {joined([*variants])} {place}"


def doubts(
    measurements: Sequence[Measurement], settings: Sequence[Setting], names: DeviceNames
) -> list[tuple[str, str]]:
    """Say in words what makes figures doubtful, how often, and where."""
    groups: dict[Flag, list[Measurement]] = {}
    for item in measurements:
        for flag in item.flags:
            if item.status == "measured" and flag != "failed check":  # incidents already
                groups.setdefault(flag, []).append(item)
    found = [
        (
            str(flag),
            f"{FLAGS[flag]} ({len(items):,} of {count(len(measurements), 'record')}: "
            f"{_some(_together(items, names))})",
        )
        for flag, items in groups.items()
    ]
    return [*found, *_few_processes(settings)]


def _some(subjects: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(subjects))
    rest = len(distinct) - _SHOWN
    return "; ".join(distinct[:_SHOWN]) + (f"; and {rest:,} more" if rest > 0 else "")


def incomparable(
    measurements: Sequence[Measurement],
    evaluations: Sequence[Evaluation],
    settings: Sequence[Setting],
    described: Sequence[Described],
    names: DeviceNames,
) -> list[str]:
    """Say which figures must not be set against each other, and why."""
    return [
        *_other_content(measurements, described),
        *_other_software(measurements, names),
        *_other_workloads(settings),
        *_unpaired(settings),
        *_other_data(measurements, evaluations),
    ]


def _other_content(
    measurements: Sequence[Measurement], described: Sequence[Described]
) -> Iterable[str]:
    contents: dict[tuple[str, str], dict[str, None]] = {}
    for item in measurements:
        key = (clean(item.case.artifact), item.case.variant)
        contents.setdefault(key, {})[item.model.sha256] = None
    for (artifact, variant), hashes in contents.items():
        if len(hashes) > 1:
            short = joined([f"#{digest[:6]}" for digest in hashes])
            yield (
                f"{artifact} {variant_name(variant)} names {len(hashes)} different files "
                f"({short}): compare only figures of the same file"
            )
    for source in described:
        for variant, file in source.files.items():
            hashes = contents.get((source.artifact, variant), {})
            if hashes and file.sha256 not in hashes:
                yield (
                    f"{source.artifact} {variant_name(variant)} was measured from another file "
                    f"than the artifact's #{file.sha256[:6]}"
                )


def _other_software(measurements: Sequence[Measurement], names: DeviceNames) -> Iterable[str]:
    versions: dict[str, dict[str, None]] = {}
    engines: dict[tuple[str, str, str | None], dict[str, None]] = {}
    tools: dict[str, None] = {}
    for item in measurements:
        device = item.device
        if item.status == "measured":
            runtime = clean(device.runtime)
            versions.setdefault(runtime, {})[clean(device.runtime_version)] = None
            machine = (clean(device.label), item.case.runtime, item.case.browser)
            engines.setdefault(machine, {})[clean(device.engine)] = None
            tools[clean(item.tool)] = None
    for runtime, found in versions.items():
        if len(found) > 1:
            yield f"{runtime} was measured in versions {joined(list(found))}: devices differ in it"
    for (label, _, _), found in engines.items():
        if len(found) > 1:
            yield f"{label} was measured with {joined(list(found))}: its days differ in it"
    if len(tools) > 1:
        yield f"the records were made by albert-export {joined(list(tools))}"
    unlike = [
        f"{_subject(item, names)} used {item.threads_used} of {item.case.threads}"
        for item in measurements
        if item.threads_used is not None and item.threads_used != item.case.threads
    ]
    if unlike:
        yield f"threads used are not those asked for: {_some(unlike)}"


def _other_workloads(settings: Sequence[Setting]) -> Iterable[str]:
    """Name the devices of one artifact and place whose workloads are not the others'."""
    places: dict[tuple[str, str], dict[str, set[str]]] = {}
    for setting in settings:
        if any(row.measured for row in setting.rows):
            kind: str = setting.rows[0].record.case.runtime
            per_device = places.setdefault((setting.workload.artifact, kind), {})
            per_device.setdefault(setting.title, set()).add(str(setting.workload))
    words = {"cpu": "the CPU", "node": "Node", "browser": "browsers"}
    for (artifact, kind), per_device in places.items():
        shared = set.intersection(*per_device.values())
        if any(workloads != shared for workloads in per_device.values()):
            common = f"only {joined(sorted(shared))} on all" if shared else "none on all of them"
            yield (
                f"{artifact} on {words[kind]}: {count(len(per_device), 'device')} measured "
                f"different batches, sequences or threads, {common}"
            )
    kinds: dict[str, dict[str, None]] = {}
    for setting in settings:
        work = setting.workload.texts or "random ids"
        kinds.setdefault(setting.workload.artifact, {})[work] = None
    for artifact, found in kinds.items():
        if len(found) > 1:
            yield (
                f"{artifact} was measured on {joined([*found])}: their times and ratios are of "
                "different work"
            )


def _unpaired(settings: Sequence[Setting]) -> Iterable[str]:
    """Name the settings where only other runs hold a baseline."""
    with_baseline = {
        (s.workload, s.title) for s in settings if any(r.variant == "baseline" for r in s.rows)
    }
    alone = [
        f"{s.workload.artifact} on {s.title}, {s.workload}, {s.date}"
        for s in settings
        if (s.workload, s.title) in with_baseline and all(r.variant != "baseline" for r in s.rows)
    ]
    if alone:
        yield (
            "no ratio where the baseline was measured in another run only, since samples of "
            f"different runs make no pairs: {_some(alone)}"
        )


def _few_processes(settings: Sequence[Setting]) -> Iterable[tuple[str, str]]:
    """Say where there is no interval, or one that is too wide to say anything."""
    times = [c.time for s in settings for r in s.rows for c in r.comparisons if c.time]
    few = sum(sessions_note([time]) is not None for time in times)
    if note := sessions_note(times):
        text = (
            f"in {few:,} of {count(len(times), 'latency ratio')} there was only a process or two "
            f"of each file, and two processes of one file differ by 1 to 3 %: {note}, or on the "
            "benchmark page 'Thorough'"
        )
        yield "few processes", text


def _other_data(
    measurements: Sequence[Measurement], evaluations: Sequence[Evaluation]
) -> Iterable[str]:
    data: dict[str, set[str]] = {}
    for item in evaluations:
        data.setdefault(clean(item.artifact), set()).add(item.data_sha256)
    for artifact, hashes in data.items():
        if len(hashes) > 1:
            yield (
                f"{artifact} was evaluated on {len(hashes)} different data files: "
                "compare accuracies only within one"
            )
    measured = {(m.case.artifact, m.case.variant): set[str]() for m in measurements}
    for m in measurements:
        measured[m.case.artifact, m.case.variant].add(m.model.sha256)
    for item in evaluations:
        hashes = measured.get((item.artifact, item.variant), set())
        if hashes and item.model.sha256 not in hashes:
            yield (
                f"{clean(item.artifact)} {variant_name(item.variant)}: the file evaluated "
                f"(#{item.model.sha256[:6]}) is not the one measured"
            )
