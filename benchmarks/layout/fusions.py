"""What fusions inside the block would gain: ALBERT-base rolled, on the CPU and in WebAssembly.

    python -m benchmarks.layout.fusions [--sessions 6] [--min-runs 42]

The file is exported with ``--no-fuse``, which leaves Q, K and V apart; ``rewrites.py`` says what
each variant of it is. Those that differ once onnxruntime has loaded them take turns by the
protocol of ``albert-export bench``, and each must meet the reference vectors of the export.
Writes ``fusions.json`` and ``fusions.md`` beside this file, or to ``--output``; takes about 20
minutes on a quiet machine.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import onnx
import onnxruntime

from benchmarks.layout.fusions_table import document
from benchmarks.layout.making import export
from benchmarks.layout.measuring import (
    RUNTIMES,
    SEQUENCES,
    Measured,
    described,
    measure,
    measuring_options,
    opening_ratio,
)
from benchmarks.layout.rewrites import make_variants
from exporter.artifact import sha256_file
from exporter.benchmark import (
    BenchmarkOptions,
    Ratio,
    Subject,
    choose_subjects,
    plan_runs,
    ratio,
)
from exporter.records import ModelFile

Row = dict[str, Any]
Operators = dict[str, int]


@click.command()
@measuring_options
def main(sessions: int, min_runs: int, output: Path) -> None:
    """Make the variants, measure them in turns, write the tables."""
    options = BenchmarkOptions(
        runtimes=RUNTIMES, sequences=SEQUENCES, sessions=sessions, min_runs=min_runs
    )
    with tempfile.TemporaryDirectory(prefix="albert-export-") as name:
        work = Path(name)
        artifact = export(work, "rolled", "--layout", "rolled", "--no-fuse")
        (exported,) = choose_subjects([artifact])
        paths = make_variants(exported.path, work / "variants")
        written = {name: block_operators(path) for name, path in paths.items()}
        running = {name: optimized_operators(path, work) for name, path in paths.items()}
        same = first_of_equals(running)
        subjects = [variant(exported, name, paths[name]) for name in dict.fromkeys(same.values())]
        measured, notices = measure(plan_runs(subjects, options), options)
    results = {
        **described(measured, notices, options),
        "block_operators": written,
        "block_operators_after_onnxruntime": running,
        "measured_as": same,
        "rows": [row for runtime in RUNTIMES for row in compare(runtime, subjects, measured)],
    }
    (output / "fusions.json").write_text(json.dumps(results) + "\n", encoding="utf-8")
    (output / "fusions.md").write_text(document(results), encoding="utf-8")
    print(document(results))


def variant(exported: Subject, name: str, path: Path) -> Subject:
    """Describe a variant: what ``exported`` takes and has to give, from another file."""
    model = ModelFile(path=path.name, sha256=sha256_file(path), file_bytes=path.stat().st_size)
    return replace(exported, artifact=name, path=path, files=(path,), model=model)


def first_of_equals(running: Mapping[str, Operators]) -> dict[str, str]:
    """Map each variant to the first of which onnxruntime makes the same operators."""
    first: dict[str, str] = {}
    keys = {name: json.dumps(operators, sort_keys=True) for name, operators in running.items()}
    for name, key in keys.items():
        first.setdefault(key, name)
    return {name: first[key] for name, key in keys.items()}


def block_operators(path: Path) -> Operators:
    """Count the operators of the loop's body."""
    model = onnx.load(path)
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
    return dict(Counter(f"{n.domain}.{n.op_type}".lstrip(".") for n in body.node).most_common())


def optimized_operators(path: Path, work: Path) -> Operators:
    """Count them again in the graph that onnxruntime makes of the file when it loads it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(work / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return block_operators(work / "optimized.onnx")


def compare(
    runtime: str, subjects: Sequence[Subject], measured: Sequence[Measured]
) -> Iterator[Row]:
    """Compare each variant with the first, in one runtime."""
    base = subjects[0].artifact
    memory = "heap_bytes" if runtime == "node" else "added_bytes"
    for subject in subjects:
        pairs = {n: _pair(measured, runtime, n, subject.artifact, base) for n in SEQUENCES}
        own, other = (
            tuple(opened for pair in pairs.values() for opened in pair[index].openings)
            for index in range(2)
        )
        longest = [one.openings for one in pairs[max(SEQUENCES)]]
        checks = [pair[0].record.check for pair in pairs.values()]
        yield {
            "runtime": runtime,
            "variant": subject.artifact,
            "median_ms": [pair[0].record.median_ms for pair in pairs.values()],
            "run": [_numbers(ratio(one.record, it.record)) for one, it in pairs.values()],
            "load": _numbers(opening_ratio(own, other, "load_ms")),
            "memory": _numbers(opening_ratio(longest[0], longest[1], memory)),
            "relative_error": max(
                error for check in checks if (error := check.relative_error) is not None
            ),
        }


def _pair(
    measured: Sequence[Measured], runtime: str, sequence: int, name: str, base: str
) -> tuple[Measured, Measured]:
    """Return a case and the base of its run: where memory is short, each group has its own."""
    cases = [
        one
        for one in measured
        if (one.record.case.runtime, one.record.case.sequence) == (runtime, sequence)
    ]
    own = next(one for one in cases if one.record.case.artifact == name)
    return own, next(
        one
        for one in cases
        if one.record.case.artifact == base and one.record.run == own.record.run
    )


def _numbers(found: Ratio) -> list[float]:
    return [round(value, 4) for value in (found.value, found.low, found.high)]


if __name__ == "__main__":
    main()
