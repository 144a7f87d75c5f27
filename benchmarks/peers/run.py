"""The tools that people use today, on ALBERT-base, against this one.

    python -m benchmarks.peers.run [--work-dir DIR] [--only NAME]... [--no-times]

Installs each tool in an environment of its own, makes each chain's files, and says of each:
bytes, coverage, parity with PyTorch, load, latency and memory. A tool that fails is a row with
its error. Writes ``results.json`` and ``results.md`` beside this file; with ``--only`` or
``--no-times`` into the work folder instead. Files that are already in the work folder are
kept. About 6 GB of disk, and an hour for the first run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarks.peers.chains import CHAINS, OURS, Chain
from benchmarks.peers.examining import examine
from benchmarks.peers.making import Product, make_products
from benchmarks.peers.measuring import measure
from benchmarks.peers.runtimes import PeerRuntimes, read_inputs
from benchmarks.peers.table import document
from exporter.benchmark import BenchmarkOptions
from exporter.ratios import ratio
from exporter.records import Measurement
from exporter.reference import read_reference
from exporter.runtimes.device import describe_python

HERE = Path(__file__).parent
SOURCES = HERE.parent / "precisions" / "sources.py"
VERSIONS = ("albert-export", "onnxruntime", "onnx", "onnx-ir", "torch", "transformers")


@click.command()
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where files are made and kept.")
@click.option("--only", multiple=True, metavar="NAME", help="Part of a chain's name; repeatable.")
@click.option("--times/--no-times", default=True, help="Whether to measure times and memory.")
@click.option("--sessions", type=click.IntRange(1), default=6, show_default=True)
@click.option("--min-runs", type=click.IntRange(2), default=36, show_default=True)
def main(
    work_dir: Path | None, only: tuple[str, ...], times: bool, sessions: int, min_runs: int
) -> None:
    """Make the files, look at them, measure them, write the tables."""
    work = (work_dir or Path(tempfile.mkdtemp(prefix="peers-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, SOURCES, work], check=True)
    if not (work / "reference.json").exists():
        command = [sys.executable, "-m", "benchmarks.peers.reference"]
        subprocess.run([*command, work / "base", work / "reference.json"], check=True)
    products = make_products(_chosen(only), work)
    runtimes = _runtimes(products, work)
    cases = read_reference(work / "reference.json")
    rows = []
    for product in products:
        print(f"{product.name}: bytes, coverage, parity …", file=sys.stderr)
        found = examine(product, cases, runtimes)
        rows.append(_row(product) | (asdict(found) if found else {"error": product.error}))
    target = HERE if times and not only else work
    results = {
        "created": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": msgspec.to_builtins(describe_python()),
        "versions": {name: metadata.version(name) for name in VERSIONS},
        "environments": _packages(products, work),
        "sessions": sessions,
        "notices": [],
        "rows": rows,
    }
    _write(results, work)  # what is known without a clock, should measuring be interrupted
    if times:
        options = BenchmarkOptions(sessions=sessions, min_runs=min_runs)
        records, results["notices"] = measure(products, runtimes, options)
        _add_times(rows, records)
    _write(results, target)
    print(document(results))


def _write(results: dict[str, Any], target: Path) -> None:
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    (target / "results.json").write_text(text, encoding="utf-8")
    (target / "results.md").write_text(document(results), encoding="utf-8")


def _chosen(only: Sequence[str]) -> list[Chain]:
    """The chains that are asked for; ours always, since all are compared with it."""
    if not only:
        return list(CHAINS)
    return [c for c in CHAINS if c.name == OURS or any(part in c.name for part in only)]


def _runtimes(products: Sequence[Product], work: Path) -> PeerRuntimes:
    ours = next(product for product in products if product.chain.name == OURS)
    if ours.path is None:
        raise SystemExit(f"{ours.name}: {ours.error}")
    inputs = read_inputs(ours.path.parent.parent / "albert-export.json")
    return PeerRuntimes(work, {product.chain.name: product.chain for product in products}, inputs)


def _row(product: Product) -> dict[str, Any]:
    return {
        "chain": product.chain.name,
        "precision": product.precision,
        "runtime": product.chain.runtime,
        "note": product.chain.note,
        "command": product.command,
    }


def _add_times(rows: list[dict[str, Any]], records: Sequence[Measurement]) -> None:
    """Give each row its times, memory and ratio to ours in the same run."""
    for row in rows:
        for record in records:
            if (record.case.artifact, record.case.variant) != (row["chain"], row["precision"]):
                continue
            if record.case.runtime == "browser":
                row["browser"] = _times(record, records)
            elif record.status == "measured":
                row.update(_times(record, records))
            else:
                row["error"] = row.get("error") or record.error


def _times(record: Measurement, records: Sequence[Measurement]) -> dict[str, Any]:
    if record.status != "measured":
        return {"error": record.error}
    found: dict[str, Any] = {
        "load_ms": record.times.session_create,
        "median_ms": record.median_ms,
        "samples_ms": [round(sample, 3) for sample in record.samples_ms],
        "session_runs": list(record.session_runs),
        "added_bytes": record.memory.added_rss,
        "peak_bytes": record.memory.peak_rss,
        "heap_bytes": record.memory.wasm_heap,
        "flags": list(record.flags),
        "engine": f"{record.device.runtime} {record.device.runtime_version}",
    }
    # Where memory is short, ours is measured again in a run of its own with each group.
    ours = next((r for r in records if r.run == record.run and r.case.artifact == OURS), None)
    if ours is None or ours is record or ours.status != "measured":
        return found
    compared = ratio(record, ours)
    found["ratio"] = [round(v, 4) for v in (compared.value, compared.low, compared.high)]
    if ours.times.session_create and record.times.session_create:
        found["load_ratio"] = round(record.times.session_create / ours.times.session_create, 3)
    return found


def _packages(products: Sequence[Product], work: Path) -> dict[str, list[str]]:
    used = {}
    for product in products:
        step = product.chain.files[product.precision]
        if not isinstance(step, str) and step.environment is not None and product.path is not None:
            used[step.environment.name] = step.environment
    return {name: environment.packages(work) for name, environment in used.items()}


if __name__ == "__main__":
    main()
