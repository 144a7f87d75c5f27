"""Rolled against unrolled ALBERT-base: load, latency and memory, on the CPU and in WebAssembly.

    python benchmarks/layout/run.py [--work-dir DIR] [--loads 7]

Needs Node 20 or later. Writes ``results.md`` and ``results.json`` beside this file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec
from workers import RUNTIMES, WEB_VERSION, Samples, measure, prepare

from exporter.runtimes.device import describe_python

HERE = Path(__file__).parent
LAYOUTS = ("unrolled", "rolled")
RUNS = {"cpu": {16: 40, 128: 15}, "wasm": {16: 40, 128: 15}}
"""Steady runs per sequence length."""

LOSS = 0.02
"""Share by which one layout must be slower or larger to be named the loser."""


@click.command()
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where files are made and kept.")
@click.option("--loads", type=click.IntRange(1), default=7, show_default=True)
def main(work_dir: Path | None, loads: int) -> None:
    """Make both files, measure them in turns, write the table."""
    work = (work_dir or Path(tempfile.mkdtemp(prefix="layout-"))).absolute()
    prepare(work)
    subprocess.run([sys.executable, str(HERE / "layouts.py"), str(work)], check=True)
    models = {layout: work / layout / "onnx/model.onnx" for layout in LAYOUTS}
    found = {
        runtime: measure(models, runtime, work=work, loads=loads, runs=RUNS[runtime], progress=_say)
        for runtime in RUNTIMES
    }
    record = {
        "device": msgspec.to_builtins(describe_python()),
        "onnxruntime_web": WEB_VERSION,
        "node": _node_version(),
        "file_bytes": {layout: path.stat().st_size for layout, path in models.items()},
        "samples": {
            runtime: {name: asdict(samples) for name, samples in by_name.items()}
            for runtime, by_name in found.items()
        },
    }
    (HERE / "results.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
    table = _document(record, found, loads)
    (HERE / "results.md").write_text(table, encoding="utf-8")
    print(table)


def _document(record: dict[str, Any], found: dict[str, dict[str, Samples]], loads: int) -> str:
    device = record["device"]
    lines = [
        "# Rolled against unrolled",
        "",
        "ALBERT-base, float32, every parameter random; the same weights in both files: "
        + ", ".join(f"{name} {size:,} bytes" for name, size in record["file_bytes"].items())
        + f". One thread, batch 1. {device['cpu']}, {device['cores']} cores, {device['system']}; "
        f"onnxruntime {device['runtime_version']}, onnxruntime-web {WEB_VERSION} in Node "
        f"{record['node']}.",
        "",
        "    python benchmarks/layout/run.py",
        "",
        f"Medians. {loads} loads, each in a new process, the layouts in turns; steady runs in "
        "turns too. Other work ran on the machine: wall times are high, CPU times less so, and "
        "the ratios, medians over neighbouring measurements, least.",
        "",
        "| runtime | figure | unrolled | rolled | rolled ÷ unrolled | loser |",
        "|---|---|--:|--:|--:|---|",
    ]
    for runtime, by_name in found.items():
        old, new = by_name["unrolled"], by_name["rolled"]
        for label, key in (("load ms", "load_ms"), ("load CPU ms", "load_cpu_ms")):
            lines.append(_line(runtime, label, old, new, key, new.load_ratio(old, key), None))
        lines.append(
            _line(runtime, "first run ms", old, new, "first_ms", new.load_ratio(old, "first_ms"))
        )
        memory = "added peak memory MiB" if runtime == "cpu" else "WASM heap MiB"
        ratio = new.load_ratio(old, "memory_bytes")
        lines.append(_line(runtime, memory, old, new, "memory_bytes", ratio, scale=2**20))
        for sequence in RUNS[runtime]:
            for label, key in (("run ms", "ms"), ("run CPU ms", "cpu_ms")):
                ratio = new.ratio(old, sequence, key)
                text = f"{label}, sequence {sequence}"
                lines.append(_line(runtime, text, old, new, key, ratio, sequence))
        lines.append(f"| {runtime} | largest difference of outputs | - | {new.error:.1e} | - | - |")
    lines += [
        "",
        f"Named as loser where the ratio is beyond {LOSS:.0%}. Memory of the CPU: growth of the "
        "process's peak by loading and one run at sequence 16. Loading in WASM starts after the "
        "runtime itself has started with a tiny model.",
    ]
    return "\n".join(lines) + "\n"


def _line(
    runtime: str,
    label: str,
    old: Samples,
    new: Samples,
    key: str,
    ratio: float,
    sequence: int | None = None,
    scale: float = 1.0,
) -> str:
    values = [
        (one.median_opened(key) if sequence is None else one.median_run(sequence, key)) / scale
        for one in (old, new)
    ]
    loser = "rolled" if ratio > 1 + LOSS else "unrolled" if ratio < 1 - LOSS else "neither"
    return f"| {runtime} | {label} | {values[0]:.0f} | {values[1]:.0f} | {ratio:.2f} | {loser} |"


def _node_version() -> str:
    found = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True)
    return found.stdout.strip().lstrip("v")


def _say(step: str) -> None:
    click.echo(f"{step} …", err=True)


if __name__ == "__main__":
    main()
