"""What fusions inside the block would gain: ALBERT-base rolled, on the CPU and in WebAssembly.

    python benchmarks/layout/fusions.py [--work-dir DIR] [--loads 5]

Needs Node 20 or later. Writes ``fusions.md`` and ``fusions.json`` beside this file.
``rewrites.py`` says what each variant is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click
import msgspec
import onnx
import onnxruntime
from rewrites import make_variants
from workers import RUNTIMES, WEB_VERSION, Samples, measure, prepare

from exporter.runtimes.device import describe_python

HERE = Path(__file__).parent
RUNS = {"cpu": {16: 40, 128: 15}, "wasm": {16: 20, 128: 9}}
"""Steady runs per sequence length."""


@click.command()
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where files are made and kept.")
@click.option("--loads", type=click.IntRange(1), default=5, show_default=True)
def main(work_dir: Path | None, loads: int) -> None:
    """Make the variants, measure them in turns, write the table."""
    work = (work_dir or Path(tempfile.mkdtemp(prefix="layout-"))).absolute()
    prepare(work)
    subprocess.run([sys.executable, str(HERE / "layouts.py"), str(work)], check=True)
    paths = make_variants(work / "rolled/onnx/model.onnx", work / "fusions")
    written = {name: block_operators(path) for name, path in paths.items()}
    running = {name: optimized_operators(path, work) for name, path in paths.items()}
    different: dict[str, str] = {}
    for name, operators in running.items():
        different.setdefault(json.dumps(operators, sort_keys=True), name)
    measured = {name: paths[name] for name in different.values()}
    found = {
        runtime: measure(
            measured,
            runtime,
            work=work,
            loads=loads,
            runs=RUNS[runtime],
            progress=lambda step: click.echo(f"{step} …", err=True),
        )
        for runtime in RUNTIMES
    }
    record = {
        "device": msgspec.to_builtins(describe_python()),
        "onnxruntime_web": WEB_VERSION,
        "block_operators": written,
        "block_operators_after_onnxruntime": running,
        "samples": {
            runtime: {name: asdict(samples) for name, samples in by_name.items()}
            for runtime, by_name in found.items()
        },
    }
    (HERE / "fusions.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
    table = _document(written, running, found)
    (HERE / "fusions.md").write_text(table, encoding="utf-8")
    print(table)


def block_operators(path: Path) -> dict[str, int]:
    """Count the operators of the loop's body."""
    model = onnx.load(path)
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
    return dict(Counter(f"{n.domain}.{n.op_type}".lstrip(".") for n in body.node).most_common())


def optimized_operators(path: Path, work: Path) -> dict[str, int]:
    """Count them again in the graph that onnxruntime makes of the file when it loads it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(work / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return block_operators(work / "optimized.onnx")


def _document(
    written: dict[str, dict[str, int]],
    running: dict[str, dict[str, int]],
    found: dict[str, dict[str, Samples]],
) -> str:
    device = describe_python()
    lines = [
        "# Fusions inside the block",
        "",
        "ALBERT-base, float32, rolled; one thread, batch 1. "
        f"{device.cpu}, {device.cores} cores, {device.system}; onnxruntime "
        f"{device.runtime_version}, onnxruntime-web {WEB_VERSION} in Node. Every cell but the "
        "last is this variant divided by the file as exported: the median over turns. Other "
        "work ran on the machine, so CPU time of the process counts, not wall time. Variants of "
        "which onnxruntime makes the same operators are measured once, under the first's name.",
        "",
        "    python benchmarks/layout/fusions.py",
        "",
    ]
    for runtime, by_name in found.items():
        base = next(iter(by_name.values()))
        lengths = list(RUNS[runtime])
        absolute = ", ".join(
            f"{base.median_run(length, 'cpu_ms'):.0f} ms at sequence {length}" for length in lengths
        )
        lines += [
            f"## {runtime}",
            "",
            f"As exported: {absolute}, load {base.median_opened('load_cpu_ms'):.0f} ms (CPU time).",
            "",
            "| variant | "
            + " | ".join(f"run, sequence {n}" for n in lengths)
            + " | load | memory | worst error |",
            "|---|" + "--:|" * (len(lengths) + 3),
        ]
        for name, samples in by_name.items():
            runs = " | ".join(f"{samples.ratio(base, n, 'cpu_ms'):.3f}" for n in lengths)
            lines.append(
                f"| {name} | {runs} | {samples.load_ratio(base, 'load_cpu_ms'):.2f} "
                f"| {samples.load_ratio(base, 'memory_bytes'):.2f} | {samples.error:.1e} |"
            )
        lines.append("")
    lines += [
        "## What onnxruntime makes of each block when it loads it",
        "",
        "| variant | nodes as written | nodes that run | fused by onnxruntime | measured as |",
        "|---|--:|--:|---|---|",
    ]
    names = {json.dumps(running[name], sort_keys=True): name for name in reversed(list(running))}
    for name in written:
        fused = {
            op: count - written[name].get(op, 0)
            for op, count in running[name].items()
            if op.startswith("com.microsoft") and count > written[name].get(op, 0)
        }
        text = ", ".join(f"{count} × {op}" for op, count in fused.items()) or "nothing"
        same = names[json.dumps(running[name], sort_keys=True)]
        nodes = f"{sum(written[name].values())} | {sum(running[name].values())}"
        lines.append(f"| {name} | {nodes} | {text} | {same} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
