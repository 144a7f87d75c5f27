"""Repair ONNX files that other tools made, and say what is left of them.

    python -m benchmarks.repair.run [--work-dir DIR] [--rounds 3]

Makes each file by the tool that makes it in the field, repairs it with the command line
in a process of its own, and writes ``results.md`` and ``results.json`` beside this file.
Files that are already in the work folder are kept. Bytes, nodes, loops and errors must
come out the same on every machine; seconds and memory are this machine's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import msgspec
import onnx

from benchmarks.commands import CommandError, albert_export
from benchmarks.repair.tools import TOOLS, make_files
from exporter.runtimes.device import describe_python

HERE = Path(__file__).parent
MB = 1e6
VERSIONS = ("albert-export", "onnx-ir", "onnx", "onnxruntime", "torch", "transformers")


@dataclass(frozen=True)
class Case:
    """One file.

    Args:
        file: its name in the work folder.
        made_by: the tool, for the table.
        target: what the repaired file must fit: bytes, or a factor of its unique bytes.
    """

    file: str
    made_by: str
    target: int | float | None = None


CASES = (
    Case("slimmed.onnx", "TorchScript exporter + onnxslim", 47_100_000),
    Case("fused.onnx", "TorchScript exporter + onnxruntime.transformers optimizer", 54_000_000),
    Case("dynamo_distinct_parameters.onnx", "dynamo exporter, distinct Parameters", 1.01),
    Case("torchscript_tied.onnx", "TorchScript exporter, tied masked LM", 1.01),
    Case("torchscript.onnx", "TorchScript exporter"),
)


@dataclass(frozen=True)
class Row:
    """What became of one file.

    Args:
        unique_bytes: bytes of the distinct tensors that ``inspect`` finds in the input.
        wasted_bytes: bytes of copies that ``inspect`` finds before; ``left_bytes`` after.
        own_error: worst error of the verification that the export makes itself.
        other_error: worst error on inputs that the export did not see.
        seconds: wall time of each round; ``cpu_seconds`` user and system time.
        peak_bytes: largest resident memory of the process over the rounds.
    """

    file: str
    made_by: str
    target: int | float | None
    input_bytes: int
    file_bytes: int
    stored_bytes: int
    unique_bytes: int
    wasted_bytes: int
    left_bytes: int
    nodes_before: int
    nodes_after: int
    layout: str
    layout_reason: str
    loops: tuple[tuple[int, int], ...]
    own_error: float
    other_error: float
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    peak_bytes: int

    @property
    def met(self) -> bool | None:
        """Whether the repaired file fits its target."""
        if self.target is None:
            return None
        factor = isinstance(self.target, float)
        limit = self.target * self.unique_bytes if factor else self.target
        return self.file_bytes <= limit


@click.command()
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where files are made and kept.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
def main(work_dir: Path | None, rounds: int) -> None:
    """Make the files, repair them, write the tables."""
    work = work_dir or Path(tempfile.mkdtemp(prefix="repair-"))
    make_files(work)
    floor = _floor(work)
    measured: dict[str, list[dict[str, Any]]] = {case.file: [] for case in CASES}
    for number in range(rounds):
        for case in CASES:
            print(f"round {number + 1} of {rounds}: {case.file} …", file=sys.stderr)
            measured[case.file].append(repair(work / case.file, work / "out" / case.file))
    rows = [_row(case, work, measured[case.file]) for case in CASES]
    table = _document(rows, floor, rounds)
    record = {
        "device": msgspec.to_builtins(describe_python()),
        "versions": {name: metadata.version(name) for name in VERSIONS},
        "tools": {tool.name: list(tool.environment.requirements) for tool in TOOLS},
        "floor_bytes": floor,
        "rows": [{**asdict(row), "met": row.met} for row in rows],
    }
    (HERE / "results.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (HERE / "results.md").write_text(table, encoding="utf-8")
    print(table)
    if missed := [row.file for row in rows if row.met is False]:
        raise SystemExit(f"target missed: {', '.join(missed)}")


def repair(source: Path, target: Path) -> dict[str, Any]:
    """Export ``source`` with the command line; return the manifest and what it took."""
    try:
        done = albert_export("export", source, "-o", target, "--force")
    except CommandError as error:
        raise SystemExit(f"{source.name}: {error}") from error
    return {
        "manifest": done.output,
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
        "peak_bytes": done.peak_bytes,
    }


def _floor(work: Path) -> int:
    """Peak memory of repairing a file without weights: Python, onnx and onnxruntime alone."""
    path = work / "tiny.onnx"
    text = '<ir_version: 8, opset_import: ["" : 18]> tiny (float[n] x) => (float[n] y) {y = Abs(x)}'
    onnx.save(onnx.parser.parse_model(text), path)
    return int(repair(path, work / "out" / path.name)["peak_bytes"])


def _row(case: Case, work: Path, measured: list[dict[str, Any]]) -> Row:
    source, folder = work / case.file, work / "out" / case.file
    manifest = measured[-1]["manifest"]
    model = manifest["models"][0]
    before, after = _inspect(source), _inspect(folder)
    files = [str(source), str(folder / model["path"])]
    difference = [sys.executable, str(HERE / "difference.py"), *files]
    other = subprocess.run(difference, check=True, capture_output=True, text=True).stdout
    return Row(
        **asdict(case),
        input_bytes=before["file_bytes"],
        file_bytes=manifest["file_bytes"],
        stored_bytes=manifest["stored_bytes"],
        unique_bytes=before["unique_bytes"],
        wasted_bytes=before["wasted_bytes"],
        left_bytes=after["wasted_bytes"],
        nodes_before=before["nodes"],
        nodes_after=after["nodes"],
        layout=manifest["layout"]["chosen"],
        layout_reason=manifest["layout"]["why"],
        loops=tuple((loop["iterations"], loop["nodes"]) for loop in manifest["layout"]["loops"]),
        own_error=manifest["worst_abs_error"],
        other_error=float(other),
        seconds=tuple(one["seconds"] for one in measured),
        cpu_seconds=tuple(one["cpu_seconds"] for one in measured),
        peak_bytes=max(one["peak_bytes"] for one in measured),
    )


def _inspect(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = albert_export("inspect", path, "--no-transfer").output["models"][0]
    return record


def _document(rows: list[Row], floor: int, rounds: int) -> str:
    device = describe_python()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in VERSIONS)
    tools = "; ".join(f"{tool.name}: {', '.join(tool.environment.requirements)}" for tool in TOOLS)
    lines = [
        "# Repair of ONNX files",
        "",
        f"`albert-export FILE.onnx` on files as other tools leave them. Measured on "
        f"{device.cpu}, {device.cores} cores, {device.system}; other work ran beside it, so "
        f"seconds are upper bounds: medians of {rounds} rounds, with the CPU time in brackets.",
        "",
        "    python -m benchmarks.repair.run",
        "",
        "| made by | input MB | repaired MB | unique MB | target | copies MB | copies left "
        "| nodes | loops | worst error, own inputs | other inputs |",
        "|---|--:|--:|--:|---|--:|--:|--:|---|--:|--:|",
        *map(_sizes_line, rows),
        "",
        "MB are 10⁶ bytes, of files with all they hold. Unique: distinct tensors of the input, "
        "as `inspect` counts them, transposed and packed copies too. Copies: bytes that it counts "
        "as stored more than once, before and after. Loops: passes × nodes of one pass. Errors are "
        "absolute, against the input file in onnxruntime: on the inputs of the export's own "
        "verification, and on others that it did not see; the tolerance is 1e-5.",
        "",
        "| made by | seconds (CPU) | peak memory MB | ÷ input | ÷ input, without the floor |",
        "|---|--:|--:|--:|--:|",
        *(_effort_line(row, floor) for row in rows),
        "",
        f"Peak memory is the resident memory of the whole process. The floor, {floor / MB:.0f} MB, "
        "is what repairing a file without weights takes: Python, onnx and onnxruntime.",
        "",
        *(f"Not rolled: {r.made_by}: {r.layout_reason}." for r in rows if r.layout != "rolled"),
        "",
        f"Versions: {versions}. Environments of the tools: {tools}.",
    ]
    return "\n".join(lines) + "\n"


def _sizes_line(row: Row) -> str:
    target = "-"
    if row.target is not None:
        limit = f"{row.target / MB:.1f} MB" if row.target > MB else f"{row.target} × unique"
        target = f"≤ {limit}: {'met' if row.met else 'MISSED'}"
    loops = ", ".join(f"{passes} × {nodes}" for passes, nodes in row.loops) or "-"
    return (
        f"| {row.made_by} | {row.input_bytes / MB:.2f} | {row.file_bytes / MB:.2f} "
        f"| {row.unique_bytes / MB:.2f} | {target} | {row.wasted_bytes / MB:.2f} "
        f"| {row.left_bytes} bytes | {row.nodes_before} → {row.nodes_after} | {loops} "
        f"| {row.own_error:.1e} | {row.other_error:.1e} |"
    )


def _effort_line(row: Row, floor: int) -> str:
    own = max(row.peak_bytes - floor, 0)
    return (
        f"| {row.made_by} | {statistics.median(row.seconds):.1f} "
        f"({statistics.median(row.cpu_seconds):.1f}) | {row.peak_bytes / MB:.0f} "
        f"| {row.peak_bytes / row.input_bytes:.2f} | {own / row.input_bytes:.2f} |"
    )


if __name__ == "__main__":
    main()
