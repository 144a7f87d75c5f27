"""Do all runtimes compute the same? Outputs of each precision on the CPU, in Node, in browsers.

    python -m benchmarks.precisions.agreement ARTIFACT… [--browsers]

Prints, per file and runtime, the relative error against the artifact's reference vectors, and
the relative difference to the CPU's outputs. The exit code is 1 where one is beyond the file's
tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from exporter.artifact import Artifact
from exporter.reference import read_reference
from exporter.runtimes.browser_worker import BrowserWorker
from exporter.runtimes.browsers import find_browsers
from exporter.runtimes.cpu_worker import CpuWorker
from exporter.runtimes.node_worker import NodeWorker
from exporter.runtimes.worker import Task, Worker
from exporter.verification import compare, relative_errors


@click.command()
@click.argument("artifacts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--browsers", is_flag=True, help="Also in every browser that is installed.")
def main(artifacts: tuple[Path, ...], browsers: bool) -> None:
    """Run every model of ARTIFACTS in every runtime on the reference vectors."""
    places: dict[str, Callable[[Task], Worker]] = {"CPU": CpuWorker, "Node": NodeWorker}
    for browser in find_browsers() if browsers else ():
        places[browser.name] = partial(BrowserWorker, browser=browser)
    print("| model | runtime | error | difference to the CPU | tolerance |")
    print("|---|---|--:|--:|--:|")
    failed = False
    for folder in artifacts:
        artifact = Artifact.load(folder)
        cases = read_reference(folder / artifact.manifest["reference"])
        for record in artifact.manifest["models"]:
            if record["tolerance"] is None:
                continue
            task = Task(
                path=folder / record["path"],
                inputs=artifact.inputs,
                sizes=dict.fromkeys(artifact.inputs.symbols, 1),
                warm_first=False,
            )
            native = None
            for place, open_worker in places.items():
                with open_worker(task) as worker:
                    outputs = [worker.outputs(case.feeds) for case in cases]
                native = outputs if native is None else native
                expected = [case.outputs for case in cases]
                error, difference = (
                    max(
                        relative_errors(
                            [compare("", a, b) for a, b in zip(side, outputs, strict=True)]
                        ).values()
                    )
                    for side in (expected, native)
                )
                failed |= not max(error, difference) <= record["tolerance"]
                print(
                    f"| {folder.name} {record['variant']} | {place} | {error:.2e} "
                    f"| {difference:.2e} | {record['tolerance']:g} |"
                )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
