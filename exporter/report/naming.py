"""What devices, places and models are called in a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from exporter.comparisons import is_baseline
from exporter.records import Case, Device, Measurement
from exporter.report.text import clean, count

__all__ = ["DeviceNames", "Workload", "variant_name", "where"]


def variant_name(variant: str) -> str:
    """Return ``unshared fp32`` for ``baseline``; other variants are called what they are."""
    if not is_baseline(variant):
        return clean(variant)
    return f"unshared {clean(variant.removeprefix('baseline').removeprefix('-')) or 'fp32'}"


@dataclass(frozen=True, order=True)
class Workload:
    """What one run computes, and on how many threads.

    Args:
        artifact: its name.
        batch: rows per run.
        sequence: tokens per row; of texts their mean, 0 where artifacts differ in it.
        threads: compute threads.
        texts: which ones were run; empty: random ids.
    """

    artifact: str
    batch: int
    sequence: int
    threads: int
    texts: str = ""

    @classmethod
    def of(cls, case: Case) -> Workload:
        """Return a case's workload."""
        texts = ""
        if (given := case.texts) is not None:
            column = "" if given.column == "text" else f", {clean(given.column)}"
            texts = (
                f"{count(given.rows, 'text')} of {clean(given.name)} #{given.sha256[:6]}{column}"
            )
        return cls(clean(case.artifact), case.batch, case.sequence, case.threads, texts)

    @property
    def row(self) -> str:
        """What a row is: ``sequence 128``, ``42 texts of reviews.jsonl #a1b2c3``."""
        return self.texts or f"sequence {self.sequence}"

    def __str__(self) -> str:
        threads = count(self.threads, "thread")
        if not self.texts:
            return f"batch {self.batch}, {self.row}, {threads}"
        tokens = f" ({count(self.sequence, 'token')} on average)" if self.sequence else ""
        return f"{self.texts}{tokens}, {threads}"


def where(device: Device, case: Case) -> str:
    """Return where a model ran: ``onnxruntime 1.32.0``, ``WASM in Chromium 140``."""
    if case.runtime == "cpu":
        return f"{clean(device.runtime)} {clean(device.runtime_version)}"
    return f"WASM in {clean(device.engine)}"


class DeviceNames:
    """Numbers the devices of some measurements and gives each a name of its own.

    A browser and a CPU runtime of one machine are two entries of the same name. Entries
    that would read alike although something differs carry their number.
    """

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self._numbers: dict[Device, int] = {}
        self.devices: dict[Device, list[Measurement]] = {}
        alike: dict[tuple[str, str], set[Device]] = {}
        for item in measurements:
            device = self.identity(item.device)
            self._numbers.setdefault(device, len(self._numbers) + 1)
            self.devices.setdefault(device, []).append(item)
            alike.setdefault((clean(device.label), where(device, item.case)), set()).add(device)
        self._ambiguous = {d for group in alike.values() if len(group) > 1 for d in group}

    @staticmethod
    def identity(device: Device) -> Device:
        """Return the device without what is measured anew each time: the clock's step."""
        return msgspec.structs.replace(device, timer_resolution_ms=None)

    def number(self, device: Device) -> int:
        """Return the device's number, from 1."""
        return self._numbers[self.identity(device)]

    def name(self, device: Device) -> str:
        """Return the device's label, with its number where that alone is ambiguous."""
        known = self.identity(device)
        label = clean(device.label) or clean(device.cpu) or "unnamed device"
        return f"{label} (D{self._numbers[known]})" if known in self._ambiguous else label
