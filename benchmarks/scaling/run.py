"""How bytes, export, load and latency grow with depth, width, sequence and batch.

    python -m benchmarks.scaling.run [--work-dir DIR] [--quick]

The reference encoder with random parameters: shared and rolled, shared and written out, and
unshared. Everything goes through ``albert-export``, each command in a process of its own.
Writes ``results.json``, ``results.md`` and ``results.svg`` beside this file; takes about 15
minutes on a quiet machine with 2 cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarks.commands import Completed, albert_export
from benchmarks.scaling.plot import draw
from benchmarks.scaling.table import document
from exporter.runtimes.device import describe_python

HERE = Path(__file__).parent
VERSIONS = ("albert-export", "onnxruntime", "onnx", "onnx-ir", "torch")
LAYOUTS = {
    "rolled": ("shared.pt", "--layout", "rolled"),
    "unrolled": ("shared.pt", "--layout", "unrolled"),
    "unshared": ("unshared.pt",),
}
"""How each is exported; rolled comes first, so that ``bench`` compares the others with it."""

BENCH = ("--sessions", "4", "--min-runs", "16", "--min-seconds", "2", "--no-transfer")


@dataclass(frozen=True)
class Point:
    """One model and one size of input.

    Args:
        axis: what varies there.
    """

    axis: str
    depth: int = 12
    width: int = 256
    sequence: int = 128
    batch: int = 1

    @property
    def value(self) -> int:
        """The size along its axis."""
        return int(getattr(self, self.axis))


POINTS = (
    *(Point("depth", depth=depth) for depth in (2, 6, 12, 24, 48)),
    *(Point("width", width=width) for width in (128, 256, 384, 768)),
    *(Point("sequence", sequence=sequence) for sequence in (16, 64, 128, 256)),
    *(Point("batch", batch=batch) for batch in (1, 2, 4, 8)),
)
QUICK = (Point("depth", depth=2), Point("depth", depth=6), Point("batch", depth=2, batch=2))


@click.command()
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where models are made and kept.")
@click.option("--quick", is_flag=True, help="A few small points, to the work folder.")
def main(work_dir: Path | None, quick: bool) -> None:
    """Export and measure every point, write the results."""
    work = (work_dir or Path(tempfile.mkdtemp(prefix="scaling-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    exports: dict[tuple[int, int], dict[str, Completed]] = {}
    measured: dict[Point, list[dict[str, Any]]] = {}
    for point in QUICK if quick else POINTS:
        shape = (point.depth, point.width)
        if shape not in exports:
            exports[shape] = export(work, *shape)
        # The point that several axes go through is measured once.
        twin = next((known for known in measured if _sizes(known) == _sizes(point)), None)
        rows = measured[twin] if twin else bench(work, point, exports[shape])
        measured[point] = [{**row, "axis": point.axis, "value": point.value} for row in rows]
    results = {
        "created": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": msgspec.to_builtins(describe_python()),
        "versions": {name: metadata.version(name) for name in VERSIONS},
        "bench_options": " ".join(BENCH),
        "rows": [row for rows in measured.values() for row in rows],
    }
    target = work if quick else HERE
    text = json.dumps(results, indent=1) + "\n"
    (target / "results.json").write_text(text, encoding="utf-8")
    (target / "results.md").write_text(document(results), encoding="utf-8")
    (target / "results.svg").write_text(draw(results["rows"]), encoding="utf-8")
    print(document(results))


def export(work: Path, depth: int, width: int) -> dict[str, Completed]:
    """Export the model of one shape in all layouts."""
    folder = _folder(work, depth, width)
    command = [sys.executable, "-m", "benchmarks.scaling.checkpoints"]
    subprocess.run([*command, str(folder), str(depth), str(width)], check=True)
    done = {}
    for layout, (checkpoint, *options) in LAYOUTS.items():
        print(f"{depth} layers of width {width}: exporting {layout} …", file=sys.stderr)
        source, target = folder / checkpoint, folder / layout
        done[layout] = albert_export("export", source, "-o", target, "--force", *options)
    return done


def bench(work: Path, point: Point, exports: dict[str, Completed]) -> list[dict[str, Any]]:
    """Measure the layouts of one point against each other."""
    folder = _folder(work, point.depth, point.width)
    sizes = f"{point.batch}×{point.sequence}"
    print(f"{point.depth} layers of width {point.width}: measuring {sizes} …", file=sys.stderr)
    arguments = [folder / layout for layout in LAYOUTS]
    shape = ("--seq", point.sequence, "--batch", point.batch)
    output = albert_export("bench", *arguments, *shape, *BENCH).output
    rows = []
    for record, summary in zip(output["records"], output["summary"], strict=True):
        layout = record["case"]["artifact"]
        took = exports[layout]
        compared = next(iter(summary["ratios"].values()), None)
        rows.append(
            {
                **asdict(point),
                "layout": layout,
                "file_bytes": record["model"]["file_bytes"],
                "export_s": round(took.seconds, 2),
                "export_cpu_s": round(took.cpu_seconds, 2),
                "export_peak_bytes": took.peak_bytes,
                "load_ms": record["times"]["session_create"],
                "median_ms": summary["median_ms"],
                "added_bytes": record["memory"]["added_rss"],
                "peak_bytes": record["memory"]["peak_rss"],
                "ratio": [compared[k] for k in ("value", "low", "high")] if compared else None,
                "flags": record["flags"],
            }
        )
    return rows


def _sizes(point: Point) -> tuple[int, int, int, int]:
    return point.depth, point.width, point.sequence, point.batch


def _folder(work: Path, depth: int, width: int) -> Path:
    return work / f"{depth}x{width}"


if __name__ == "__main__":
    main()
