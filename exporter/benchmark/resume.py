"""What of a plan a results file already holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.plan import Arm, Run
from exporter.comparisons import compared_with
from exporter.records import Device, Measurement, Record

__all__ = ["Remainder", "remaining_runs"]


@dataclass(frozen=True)
class Remainder:
    """What is left to measure.

    Args:
        runs: the runs with cases that are not held.
        held: records of the plan's other cases, in the plan's order.
        again: how many cases are held and measured again all the same.
    """

    runs: tuple[Run, ...]
    held: tuple[Measurement, ...]
    again: int


def remaining_runs(
    runs: Sequence[Run],
    records: Iterable[Record],
    options: BenchmarkOptions,
    device: Callable[[Arm], Device],
) -> Remainder:
    """Compare a plan with the records of a file.

    A case is held where a record has the same case, file content, setting to leave early with,
    machine and version of the runtime, and at least the runs asked for, without interruption;
    or where it failed, since a failure is a result. What was not run is tried again. A ratio
    needs both sides in one run, so what a missing case is compared with is measured again
    beside it.
    """
    measured = [record for record in records if isinstance(record, Measurement)]
    left: list[Run] = []
    held: list[Measurement] = []
    again = 0
    for run in runs:
        found = {arm.case: _holding(arm, measured, options, device(arm)) for arm in run.arms}
        missing = [arm for arm in run.arms if found[arm.case] is None]
        cases = [arm.case for arm in run.arms]
        needed = {arm.case for arm in missing}
        needed.update(*(compared_with(arm.case, cases) for arm in missing))
        chosen = [arm for arm in run.arms if arm.case in needed]
        if chosen:
            left.append(Run(tuple(chosen)))
        again += len(chosen) - len(missing)
        held += [
            record
            for arm in run.arms
            if arm not in chosen and (record := found[arm.case]) is not None
        ]
    return Remainder(tuple(left), tuple(held), again)


def _holding(
    arm: Arm, records: Sequence[Measurement], options: BenchmarkOptions, device: Device
) -> Measurement | None:
    """The last record that holds ``arm``."""
    for record in reversed(records):
        if (
            record.case == arm.case
            and record.model.sha256 == arm.subject.model.sha256
            and _is_same(record.device, device)
            and _is_complete(record, options)
            and _leaves_alike(record, arm)
        ):
            return record
    return None


def _leaves_alike(record: Measurement, arm: Arm) -> bool:
    """Whether it left early by the same setting: a new calibration changes no file."""
    setting = arm.subject.leaves
    if setting is None or record.status != "measured":
        return True
    used = record.layers
    return used is not None and (used.setting, used.value) == (setting.name, setting.value)


def _is_complete(record: Measurement, options: BenchmarkOptions) -> bool:
    if record.status == "measured":
        return (
            "interrupted" not in record.flags
            and len(record.samples_ms) >= options.min_runs
            and max(1, len(record.session_runs)) >= options.sessions
        )
    return record.status == "failed"


def _is_same(recorded: Device, known: Device) -> bool:
    """Whether it is the machine and the runtime; the label may change, and only a running
    engine tells its whole version."""
    return recorded.engine.startswith(known.engine) and all(
        getattr(recorded, name) == getattr(known, name)
        for name in ("cpu", "system", "cores", "usable_cores", "runtime", "runtime_version")
    )
