"""The runs as tasks of Dask: on workers of this machine, or on those of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dask
from distributed import Client, LocalCluster, as_completed

from benchmarks.sharing_tradeoff.performing import finished, perform, prepare
from benchmarks.sharing_tradeoff.settings import Run, Study

__all__ = ["StudyError", "connect", "perform_all"]


class StudyError(Exception):
    """Some runs failed; the text names them."""


PROFILER = "distributed.worker.profile.enabled"
_SETTINGS = {
    # It looks into running frames a hundred times a second; torch, that tracks tensors by
    # weak references while it traces, then loses some.
    PROFILER: False,
    # Dask has workers give freed memory back at once. A training asks for it again in the next
    # step, and spent a quarter of its time in the kernel.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**32,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
    # A machine that slept, or was stopped for a while, did not lose its workers.
    "distributed.scheduler.worker-ttl": None,
}


@contextmanager
def connect(address: str | None, workers: int, folder: Path) -> Iterator[Client]:
    """Yield a client of the cluster at ``address``, else of one made for the occasion.

    The latter has ``workers`` processes of one thread each, that are started again when
    they die; Dask then gives their run to another one.

    Raises:
        StudyError: a worker of the cluster runs Dask's profiler, beside which torch cannot
            export.
    """
    if address is not None:
        with Client(address) as client:
            if any(client.run(dask.config.get, PROFILER).values()):
                variable = "DASK_" + PROFILER.upper().replace(".", "__")
                raise StudyError(
                    f"torch cannot export beside Dask's profiler: start the workers "
                    f"with {variable}=False"
                )
            yield client
        return
    with (
        dask.config.set(_SETTINGS),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address=":0",
            local_directory=str(folder / "dask"),
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def perform_all(
    client: Client,
    study: Study,
    folder: Path,
    results: Path,
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> Sequence[Path]:
    """Perform whatever runs of the study are not finished; return all files of results.

    Args:
        client: the engine. All its workers see ``folder`` and ``results`` at these paths.
        study: what to run.
        folder: texts, teachers and snapshots.
        results: one file a run.
        progress: told the runs done, of how many, and the name of the last one.

    Raises:
        StudyError: runs failed; the others were performed.
    """
    runs = list(study.runs())
    missing = [run for run in runs if not finished(run, study, results)]
    done = len(runs) - len(missing)
    progress(done, len(runs), "")
    tasks = {run.task for run in missing}
    ready = {task: client.submit(prepare, task, study, folder, pure=False) for task in tasks}
    futures = {
        client.submit(
            *(perform, run, study, folder, results, ready[run.task]),
            pure=False,
            priority=-index,  # in their order, whichever becomes ready first
        ): run
        for index, run in enumerate(missing)
    }
    failed: dict[Run, str] = {}
    for future in as_completed(futures):
        run = futures[future]
        if future.status == "finished":
            done += 1
            progress(done, len(runs), run.name)
        else:
            failed[run] = str(future.exception()).partition("\n")[0]
    if failed:
        run, why = next(iter(failed.items()))
        raise StudyError(f"{len(failed)} of {len(runs)} runs failed; {run.name}: {why}")
    return [results / f"{run.name}.json" for run in runs]
