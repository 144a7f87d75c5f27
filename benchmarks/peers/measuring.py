"""Times and memory of all files: the product's own protocol, one interleaved run a precision.

In the browser, where only onnxruntime-web and LiteRT.js run files of these chains, ours and
LiteRT's take turns.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from benchmarks.peers.chains import IN_BROWSER, OURS, PRECISIONS
from benchmarks.peers.making import Product
from benchmarks.peers.runtimes import SEQUENCE, PeerRuntimes
from exporter.artifact import combined_digest, sha256_file
from exporter.benchmark import Arm, Bench, BenchmarkOptions, Run, Step, Subject
from exporter.records import Case, Measurement, ModelFile

__all__ = ["measure"]


def measure(
    products: Sequence[Product], runtimes: PeerRuntimes, options: BenchmarkOptions
) -> tuple[list[Measurement], list[str]]:
    """Measure every product that has a file; ours comes first in each run, and is opposed.

    Returns:
        The records, and what a person should know.
    """
    runs = []
    for precision in PRECISIONS:
        present = [p for p in products if p.precision == precision and p.path is not None]
        present.sort(key=lambda product: product.chain.name != OURS)
        browser = [p for p in present if p.chain.name in (OURS, IN_BROWSER)]
        runs.append(Run(tuple(_arm(product, runtimes, "cpu") for product in present)))
        if len(browser) > 1:
            runs.append(Run(tuple(_arm(product, runtimes, "browser") for product in browser)))
    bench = Bench(runs, runtimes, options, _say)
    return list(bench.records()), bench.notices


def _arm(product: Product, runtimes: PeerRuntimes, place: Literal["cpu", "browser"]) -> Arm:
    assert product.path is not None
    case = Case(
        artifact=product.chain.name,
        variant=product.precision,
        runtime=place,
        browser="chromium" if place == "browser" else None,
        threads=1,
        batch=1,
        sequence=SEQUENCE,
    )
    model = ModelFile(
        path=product.path.name,
        sha256=combined_digest([sha256_file(path) for path in product.files]),
        file_bytes=sum(path.stat().st_size for path in product.files),
    )
    subject = Subject(
        artifact=product.chain.name,
        variant=product.precision,
        path=product.path,
        files=tuple(product.files),
        model=model,
        inputs=runtimes.inputs,
    )
    return Arm(case, subject, runtimes.sizes)


def _say(step: Step) -> None:
    print(f"{step.text}: {step.done:.0%}, {step.remaining_s:.0f} s left", file=sys.stderr)
