"""What can be told of the machine a measurement is made on."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from exporter.records import Device

__all__ = ["describe_device", "describe_python", "usable_cores"]

_FLAGS = (
    *("avx", "avx2", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2"),
)
"""Instruction sets that onnxruntime's kernels choose by, x86 and Arm."""


def describe_device(
    *,
    engine: str,
    runtime: str,
    runtime_version: str,
    user_agent: str | None = None,
    cross_origin_isolated: bool | None = None,
    timer_resolution_ms: float | None = None,
) -> Device:
    """Describe this machine, with what is known of the runtime on it; see :class:`Device`.

    The label is the processor's name until a person gives another.
    """
    cpu = _cpu_name()
    return Device(
        label=cpu,
        cpu=cpu,
        cpu_flags=_cpu_flags(),
        cores=os.cpu_count(),
        usable_cores=usable_cores(),
        memory_bytes=_memory_bytes(),
        system=_system(),
        engine=engine,
        runtime=runtime,
        runtime_version=runtime_version,
        user_agent=user_agent,
        cross_origin_isolated=cross_origin_isolated,
        timer_resolution_ms=timer_resolution_ms,
    )


def describe_python(*, timer_resolution_ms: float | None = None) -> Device:
    """Describe this machine, with onnxruntime in this Python."""
    return describe_device(
        engine=f"{platform.python_implementation()} {platform.python_version()}",
        runtime="onnxruntime",
        runtime_version=metadata.version("onnxruntime"),
        timer_resolution_ms=timer_resolution_ms,
    )


def usable_cores() -> int:
    """Logical cores that this process, and those it starts, may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _cpu_name() -> str:
    name = _cpuinfo().get("model name")
    if name is None and platform.system() == "Darwin":
        name = _sysctl("machdep.cpu.brand_string")
    return name or platform.processor() or platform.machine() or "unknown"


def _cpu_flags() -> tuple[str, ...]:
    words = _cpuinfo()
    present = set((words.get("flags") or words.get("Features") or "").split())
    return tuple(flag for flag in _FLAGS if flag in present)


@cache
def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor; empty on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _sysctl(name: str) -> str | None:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _system() -> str:
    if platform.system() == "Darwin":
        name = f"macOS {platform.mac_ver()[0]}"
    else:
        try:
            name = platform.freedesktop_os_release()["PRETTY_NAME"]
        except (OSError, KeyError):
            name = f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"
