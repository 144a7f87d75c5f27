"""The sentences a report begins with: what was gained, and where it was lost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.comparisons import exit_name, exit_of, is_baseline
from exporter.ratios import Ratio
from exporter.records import Evaluation
from exporter.report.figures import Comparison, Row, Setting
from exporter.report.naming import variant_name
from exporter.report.sizes import Model
from exporter.report.text import clean, count, joined, milliseconds, ratio, share, size

__all__ = ["Headline", "headline", "verdict_note"]


_REASONS = {
    "likely out of memory": ", likely for lack of memory",
    "too slow": ": it was too slow",
}


@dataclass(frozen=True)
class Headline:
    """What to read in ten seconds about one artifact.

    Args:
        artifact: which.
        sentence: the variant that does best, with its size and latency.
        details: where that latency was best and worst, accuracy, and why this variant.
        losses: where a variant is slower or larger; empty if nowhere.
        variant: the variant chosen; ``None`` if nothing was measured.
    """

    artifact: str
    sentence: str
    details: tuple[str, ...]
    losses: tuple[str, ...]
    variant: str | None


@dataclass(frozen=True)
class _Candidate:
    model: Model
    rows: tuple[tuple[Setting, Row], ...]

    @property
    def compared(self) -> list[tuple[Setting, Comparison, Ratio]]:
        return [
            (setting, comparison, comparison.time)
            for setting, row in self.rows
            if (comparison := row.main) and comparison.time
        ]

    @property
    def slower_somewhere(self) -> bool:
        return any(comparison.verdict == "slower" for _, comparison, _ in self.compared)

    @property
    def mean_ratio(self) -> float:
        """Geometric mean of the latency ratios; infinite without any."""
        logs = [math.log(time.value) for *_, time in self.compared]
        return math.exp(sum(logs) / len(logs)) if logs else math.inf


def headline(
    artifact: str,
    models: Sequence[Model],
    settings: Sequence[Setting],
    evaluations: Sequence[Evaluation],
) -> Headline:
    """Build the headline of one artifact from its models, settings and evaluations.

    Chosen is the smallest file that is nowhere slower than the unshared fp32 baseline, or
    the one least slow if all are; files whose outputs were found wrong are left out.
    """
    losses = _losses(models, settings)
    candidates = _candidates(models, settings)
    if not candidates:
        return Headline(artifact, "No model was measured with right outputs.", (), losses, None)
    compared = [c for c in candidates if c.compared]
    never_slower = [c for c in compared if not c.slower_somewhere]
    if never_slower:
        chosen = min(never_slower, key=lambda c: c.model.file.file_bytes)
        rule = "the smallest file that was nowhere slower than the unshared fp32 baseline"
    elif compared:
        chosen = min(compared, key=lambda c: c.mean_ratio)
        rule = "the fastest file; each was slower than the unshared fp32 baseline somewhere"
    else:
        chosen = min(candidates, key=lambda c: c.model.file.file_bytes)
        rule = "the smallest file; there was no baseline to compare times with"
    latency, details = _time_parts(chosen, settings)
    early = _early_part(chosen)
    sentence = f"{chosen.model.name}: {_size_part(chosen.model)}, {latency}{early}."
    if shared := _shared_part(chosen.model, models):
        details.append(shared)
    if accuracy := _accuracy_part(chosen.model, evaluations):
        details.append(accuracy)
    if compared and not losses:
        details.append(
            "Nothing measured was clearly slower or larger than what it is compared with."
        )
    details.append(f"Chosen for the headline: {rule}.")
    return Headline(artifact, sentence, tuple(details), losses, chosen.model.variant)


def _candidates(models: Sequence[Model], settings: Sequence[Setting]) -> list[_Candidate]:
    found: list[_Candidate] = []
    for model in models:
        if is_baseline(model.variant):
            continue
        rows = [
            (setting, row)
            for setting in settings
            if (row := setting.row(model.variant)) and row.record.model.sha256 == model.file.sha256
        ]
        if rows and all(row.trusted for _, row in rows):
            found.append(_Candidate(model, tuple(rows)))
    return found


def _size_part(model: Model) -> str:
    part = size(model.file.file_bytes)
    if model.file.brotli_bytes is not None:
        part += f" ({size(model.file.brotli_bytes)} on the wire)"
    if model.against_baseline is None:
        return part
    if model.against_baseline < 1:
        times = ratio(1 / model.against_baseline)
        return f"{part}, {times} smaller than the unshared fp32 baseline"
    return f"{part}, {ratio(model.against_baseline)} the unshared fp32 baseline's size"


def _shared_part(chosen: Model, models: Sequence[Model]) -> str | None:
    """Say what of a smaller file is due to sharing, and not to its precision."""
    whole = next(
        (m for m in models if m.variant == "fp32" and m.against_baseline is not None), None
    )
    if chosen.variant == "fp32" or whole is None or not whole.against_baseline:
        return None
    bytes_ = size(whole.file.file_bytes)
    if whole.against_baseline >= 1:
        return f"Sharing alone, in fp32, makes nothing smaller: {bytes_}."
    return f"Sharing alone, in fp32: {bytes_}, {ratio(1 / whole.against_baseline)} smaller."


def _time_parts(chosen: _Candidate, settings: Sequence[Setting]) -> tuple[str, list[str]]:
    """Return what the headline says of latency, and what stands below it."""
    compared = chosen.compared
    failed = _failed_baselines(settings)
    if not compared:
        setting, row = chosen.rows[0]
        note = [] if failed else ["No unshared baseline was measured beside it."]
        return f"{milliseconds(row.typical_ms)} per run on {setting.title}", failed + note
    ordered = sorted(compared, key=lambda entry: entry[2].value)
    (best_at, comparison, best), (worst_at, _, worst) = ordered[0], ordered[-1]
    if len(ordered) == 1:
        unclear = verdict_note([comparison.verdict])
        text = f"{ratio(best.value)} its latency{unclear} on {best_at.title}"
        return text, [f"{_sure(best)}{best_at.workload}.", *failed]
    span = dict.fromkeys([ratio(best.value), ratio(worst.value)])
    verdicts = Counter(comparison.verdict for _, comparison, _ in ordered)
    unclear = verdict_note([*verdicts])
    text = f"{' to '.join(span)} its latency{unclear} {_places([s for s, *_ in ordered])}"
    return text, [
        f"Best on {_place(best_at, settings)}: {ratio(best.value)}; "
        f"worst on {_place(worst_at, settings)}: {ratio(worst.value)}; "
        f"of {count(len(ordered), 'setting')}, "
        f"{joined([f'{verdict} in {number:,}' for verdict, number in verdicts.items()])}.",
        *failed,
    ]


def _early_part(chosen: _Candidate) -> str:
    """Name what the same file does where it leaves early, if that was measured beside it."""
    name = exit_name(chosen.model.variant)
    found = [
        (row, comparison.time.value)
        for setting, full in chosen.rows
        if (row := setting.row(name)) and row.record.model.sha256 == full.record.model.sha256
        for comparison in row.comparisons
        if comparison.against == chosen.model.variant and comparison.time and row.trusted
    ]
    if not found:
        return ""
    ends = [ratio(value) for value in (min(v for _, v in found), max(v for _, v in found))]
    span = " to ".join(dict.fromkeys(ends))
    run = f"{milliseconds(found[0][0].typical_ms)}, " if len(found) == 1 else ""
    return f"; leaving early ({variant_name(name)}) {run}{span} the latency of all its layers"


def verdict_note(verdicts: Sequence[str]) -> str:
    """Add to ratios, in brackets, what all of them come to, unless that is ``faster``."""
    (common, *others) = dict.fromkeys(verdicts)
    return "" if others or common in ("faster", "not known") else f" ({common})"


def _sure(time: Ratio) -> str:
    if not time.has_interval:
        return ""
    return f"95 % interval of the ratio {time.low:.2f}–{time.high:.2f}; "


def _failed_baselines(settings: Sequence[Setting]) -> list[str]:
    """Say where the baseline itself could not run, which no ratio shows."""
    found: dict[str, str] = {}
    for setting in settings:
        for row in setting.rows:
            if row.variant == "baseline" and row.record.status == "failed":
                found[setting.title] = next(
                    (why for flag, why in _REASONS.items() if flag in row.record.flags), ""
                )
    return [
        f"The unshared fp32 baseline did not run on {title}{why}." for title, why in found.items()
    ]


def _places(settings: Sequence[Setting]) -> str:
    """Say on how many devices, and in how many runtimes if one device has several."""
    devices = list(dict.fromkeys(setting.device for setting in settings))
    titles = list(dict.fromkeys(setting.title for setting in settings))
    if len(titles) == 1:
        return f"on {titles[0]}"
    on = f"on {devices[0] if len(devices) == 1 else count(len(devices), 'device')}"
    return on if len(titles) == len(devices) else f"in {count(len(titles), 'runtime')} {on}"


def _place(setting: Setting, settings: Sequence[Setting]) -> str:
    """Name a setting; with its workload where the place alone has several."""
    several = len({s.workload for s in settings if s.title == setting.title}) > 1
    return f"{setting.title}, {setting.workload}" if several else setting.title


def _accuracy_part(model: Model, evaluations: Sequence[Evaluation]) -> str | None:
    mine = [
        e
        for e in evaluations
        if e.model.sha256 == model.file.sha256 and exit_of(e.variant) is None  # all its layers
    ]
    if not mine:
        return None
    latest = max(mine, key=lambda e: e.created)
    part = f"Accuracy {share(latest.accuracy)}"
    full = [
        e
        for e in evaluations
        if e.variant == "fp32" and e.data_sha256 == latest.data_sha256 and e.rows == latest.rows
    ]
    if model.variant != "fp32" and full:
        part += f", fp32 {share(max(full, key=lambda e: e.created).accuracy)}"
    return f"{part} on {clean(latest.data)} ({count(latest.rows, 'row')})."


def _losses(models: Sequence[Model], settings: Sequence[Setting]) -> tuple[str, ...]:
    """Say where a variant is wrong, slower, or larger in memory or on disk than it should be."""
    slower: dict[tuple[str, str], list[tuple[float, Setting]]] = {}
    heavier: dict[str, list[tuple[float, Setting]]] = {}
    wrong: dict[str, list[tuple[Setting, Row]]] = {}
    compared: dict[tuple[str, str], int] = {}
    for setting in settings:
        for row in setting.rows:
            if row.record.check.status == "failed":
                wrong.setdefault(row.name, []).append((setting, row))
            for c in row.comparisons:
                pair = (row.name, variant_name(c.against))
                compared[pair] = compared.get(pair, 0) + (c.time is not None)
                if row.reference:  # how unshared models do is no loss of the shared ones
                    continue
                if c.verdict == "slower" and c.time is not None:
                    slower.setdefault(pair, []).append((c.time.value, setting))
                if c.against == "baseline" and c.memory is not None and c.memory > 1.05:
                    heavier.setdefault(row.name, []).append((c.memory, setting))
    found = [
        f"{name} computes wrong outputs in {count(len(cases), 'setting')}: {_worst_check(cases)}"
        for name, cases in wrong.items()
    ]
    found += [
        f"{name} is slower than {other} in {len(cases)} of "
        f"{count(compared[name, other], 'setting')}: {_worst(cases, settings)}"
        for (name, other), cases in slower.items()
    ]
    found += [
        f"{name} takes more memory than the unshared fp32 baseline: {_worst(cases, settings)}"
        for name, cases in heavier.items()
    ]
    found += [
        f"{model.name} is larger than the unshared fp32 baseline: {ratio(model.against_baseline)}"
        for model in models
        if model.against_baseline is not None and model.against_baseline > 1 and not model.reference
    ]
    return tuple(found)


def _worst(cases: Sequence[tuple[float, Setting]], settings: Sequence[Setting]) -> str:
    """Return the ratios' range and where the largest was found."""
    value, setting = max(cases, key=lambda case: case[0])
    span = dict.fromkeys([ratio(min(low for low, _ in cases)), ratio(value)])
    if len(cases) == 1:
        return f"{ratio(value)} on {_place(setting, settings)}"
    return f"{' to '.join(span)}, worst on {_place(setting, settings)}"


def _worst_check(cases: Sequence[tuple[Setting, Row]]) -> str:
    """Return where outputs were wrong most."""
    setting, row = max(cases, key=lambda case: case[1].record.check.relative_error or 0.0)
    check = row.record.check
    if check.relative_error is None or check.tolerance is None:
        return setting.title
    return (
        f"relative error {check.relative_error:.2g} where {check.tolerance:.2g} is allowed, "
        f"on {setting.title}"
    )
