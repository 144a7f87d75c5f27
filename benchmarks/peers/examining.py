"""What can be told of a file without a clock: bytes, coverage, parity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands import CommandError, albert_export
from benchmarks.peers.making import Product
from benchmarks.peers.runtimes import PeerRuntimes
from exporter.errors import ExportError
from exporter.reference import ReferenceCase
from exporter.runtimes.worker import Task
from exporter.verification import CaseReport, compare, relative_errors

__all__ = ["Examination", "examine"]


@dataclass(frozen=True)
class Examination:
    """What one file is.

    Args:
        file_bytes: of all its files.
        reached, operations: weight operations whose weight takes fewer bits than float32,
            and all; unknown where the tool's own format tells neither.
        wasted_bytes: copies of tensors that ``inspect`` finds; ``None`` for other formats.
        relative_error: root mean square of the difference to PyTorch's float32 outputs in
            proportion to theirs, the largest over outputs; ``None``: it could not be run.
        missing: outputs of the model that the file does not have.
        error: why it could not be run.
    """

    file_bytes: int
    reached: int | None = None
    operations: int | None = None
    wasted_bytes: int | None = None
    relative_error: float | None = None
    missing: tuple[str, ...] = ()
    error: str | None = None


def examine(
    product: Product, cases: list[ReferenceCase], runtimes: PeerRuntimes
) -> Examination | None:
    """Look at the product's file; ``None``: there is none."""
    if product.path is None:
        return None
    size = sum(path.stat().st_size for path in product.files)
    reached, operations, wasted, error, parity = None, None, None, None, None
    missing: tuple[str, ...] = ()
    try:
        reached, operations, wasted = _coverage(product)
        reports = _compare(product, cases, runtimes)
        parity = max(relative_errors(reports).values(), default=math.inf)
        missing = reports[0].missing
        parity = parity if math.isfinite(parity) else None
    except (ExportError, CommandError) as failure:
        error = str(failure).removeprefix(f"{product.path} ")
    return Examination(size, reached, operations, wasted, parity, missing, error)


def _coverage(product: Product) -> tuple[int | None, int | None, int | None]:
    if product.path is None or product.path.suffix != ".onnx":
        told = product.told or {}
        return told.get("reached"), told.get("total"), None
    model = albert_export("inspect", product.path, "--no-transfer").output["models"][0]
    found = model["quantizer"]
    return found["reduced_operations"], found["operations"], model["wasted_bytes"]


def _compare(
    product: Product, cases: list[ReferenceCase], runtimes: PeerRuntimes
) -> tuple[CaseReport, ...]:
    task = Task(
        path=product.path or Path(),
        inputs=runtimes.inputs,
        sizes=runtimes.sizes,
        threads=1,
        warm_first=False,
    )
    with runtimes.start(product.chain, task) as worker:
        return tuple(compare(c.name, c.outputs, worker.outputs(c.feeds)) for c in cases)
