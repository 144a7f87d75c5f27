"""The one schema of a measurement, shared by every runtime, page, server and report."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["SCHEMA_VERSION", "Device", "Measurement", "describe_device"]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Device:
    """Where a measurement was made."""

    cpu: str
    cores: int
    system: str
    runtime: str
    runtime_version: str


@dataclass(frozen=True)
class Measurement:
    """One case on one device: a file, a runtime, a number of threads, an input size.

    Args:
        variant: name of the file within the artifact, such as ``fp32`` or ``baseline``.
        file: path within the artifact.
        file_bytes: size on disk, external data included.
        threads: compute threads the runtime was given.
        batch: rows per run.
        sequence: tokens per row.
        load_ms: creating the session, file reading included.
        first_ms: the first run after loading.
        samples_ms: every steady run, in order.
        added_rss_bytes: growth of the process's resident memory by loading and running;
            ``None`` where the platform does not tell.
        device: where.
    """

    variant: str
    file: str
    file_bytes: int
    threads: int
    batch: int
    sequence: int
    load_ms: float
    first_ms: float
    samples_ms: tuple[float, ...]
    added_rss_bytes: int | None
    device: Device
    schema: int = field(default=SCHEMA_VERSION)

    @property
    def median_ms(self) -> float:
        """Median of the steady runs."""
        return float(np.median(self.samples_ms))

    @property
    def p90_ms(self) -> float:
        """90th percentile of the steady runs."""
        return float(np.percentile(self.samples_ms, 90))

    @property
    def spread(self) -> float:
        """Median absolute deviation of the steady runs, relative to their median."""
        samples, median = np.asarray(self.samples_ms), self.median_ms
        return float(np.median(np.abs(samples - median)) / median) if median else 0.0

    def to_json(self) -> str:
        """Return one line of JSON; raw samples and the derived figures."""
        derived = {"median_ms": self.median_ms, "p90_ms": self.p90_ms, "spread": self.spread}
        return json.dumps({**asdict(self), **derived})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measurement:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: another schema version, a field missing, or no usable sample.
        """
        if values.get("schema") != SCHEMA_VERSION:
            raise ValueError(
                f"measurement has schema {values.get('schema')!r}; this version reads "
                f"{SCHEMA_VERSION}"
            )
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        try:
            device = Device(**known.pop("device"))
            samples = tuple(float(sample) for sample in known.pop("samples_ms"))
            if not samples or not np.isfinite(samples).all():
                raise ValueError("measurement needs samples_ms, finite and at least one")
            return cls(**known, device=device, samples_ms=samples)
        except (KeyError, TypeError) as error:
            raise ValueError(f"measurement is incomplete: {error}") from error


def describe_device(runtime: str, package: str) -> Device:
    """Describe this machine and the runtime that package ``package`` provides."""
    import os

    return Device(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        runtime=runtime,
        runtime_version=metadata.version(package),
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
