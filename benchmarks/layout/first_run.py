"""Why a rolled file's first run in WebAssembly is slower: is it the file, or the compiler?

    python -m benchmarks.layout.first_run [--rounds 6]

V8 compiles the functions that run often a second time, better, in the background. Both layouts
of ALBERT-base are loaded in fresh Node processes, in turns, and run at once or after a wait that
lets the compiler finish. Writes ``first_run.md`` beside this file; takes about four minutes.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import click

from benchmarks.layout.making import export
from benchmarks.layout.measuring import SEQUENCES
from benchmarks.layout.run import LAYOUTS
from exporter.packages import RUNTIME, find_node, runtime_files
from exporter.ratios import paired_ratio
from exporter.runtimes.device import describe_python

HERE = Path(__file__).parent
WAITS_MS = (0, 2000)
FIGURES = ("first run", "third run", "load and first run")

Setting = tuple[int, int, str]
"""Sequence length, wait in ms, layout."""


@click.command()
@click.option("--rounds", type=click.IntRange(2), default=6, show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=HERE,
    show_default="beside this file",
)
def main(rounds: int, output: Path) -> None:
    """Load and run both files in fresh processes, in turns."""
    node = find_node()
    if node is None:
        raise click.ClickException("Node 20 or later is not installed")
    settings = list(itertools.product(SEQUENCES, WAITS_MS, LAYOUTS))
    found: dict[Setting, list[list[float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="albert-export-") as name:
        files = {
            layout: export(Path(name), layout, "--layout", layout).folder / "onnx" / "model.onnx"
            for layout in LAYOUTS
        }
        turns = [setting for _ in range(rounds) for setting in settings]
        with click.progressbar(turns, label="processes") as bar:
            for sequence, wait_ms, layout in bar:
                figures = run(node, files[layout], wait_ms, sequence)
                found[sequence, wait_ms, layout].append(figures)
    device = describe_python()
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    lines = [
        "# The first run in WebAssembly",
        "",
        f"ALBERT-base, float32, one thread, batch 1; {rounds} fresh processes of each cell, in "
        f"turns. {device.cpu}, {device.cores} cores, {device.system}; Node {version[1:]}, "
        f"{RUNTIME.package} {RUNTIME.version}. Medians in ms; ratios with their 95 % interval.",
        "",
        "    python -m benchmarks.layout.first_run",
        "",
        "| sequence | wait after loading | figure | unrolled | rolled | rolled ÷ unrolled |",
        "|--:|--:|---|--:|--:|--:|",
        *table(found),
    ]
    (output / "first_run.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(node: Path, model: Path, wait_ms: int, sequence: int) -> list[float]:
    """Return the milliseconds of ``FIGURES``, from a fresh process."""
    runtime = (runtime_files() / "ort.node.min.mjs").as_uri()
    arguments = (HERE / "first_run.mjs", runtime, model, wait_ms, sequence)
    command = [str(node), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    times = json.loads(done.stdout)
    first, _, third = times["runs"]
    return [first, third, times["load"] + first]


def table(found: Mapping[Setting, Sequence[Sequence[float]]]) -> Iterator[str]:
    """Yield the rows: each figure of both layouts, and its ratio."""
    for sequence, wait_ms in itertools.product(SEQUENCES, WAITS_MS):
        unrolled, rolled = (found[sequence, wait_ms, layout] for layout in LAYOUTS)
        for index, figure in enumerate(FIGURES):
            its, own = ([one[index] for one in side] for side in (unrolled, rolled))
            ratio = paired_ratio(own, its, session_runs=[1] * len(own))
            yield (
                f"| {sequence} | {wait_ms / 1000:g} s | {figure} | {median(its):,.0f} "
                f"| {median(own):,.0f} | {ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f}) |"
            )


if __name__ == "__main__":
    main()
