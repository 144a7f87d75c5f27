"""The runs as tasks of Dask: on workers of this machine, or on those of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dask
from distributed import Client, LocalCluster, Worker, as_completed, get_worker

from benchmarks.sharing_tradeoff.performing import missing, perform, prepare
from benchmarks.sharing_tradeoff.settings import Run, Study, TaskName

__all__ = ["StudyError", "connect", "perform_all"]


class StudyError(Exception):
    """The engine cannot be used, or some runs failed; the text says which and why."""


PROFILER = "distributed.worker.profile.enabled"
_NO_PROFILER = f"DASK_{PROFILER.upper().replace('.', '__')}=False"
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
def connect(
    address: str | None, workers: int, folder: Path, wait_s: float = 30
) -> Iterator[Client]:
    """Yield a client of the cluster at ``address``, else of one made for the occasion.

    The latter has ``workers`` processes of one thread each, that are started again when
    they die; Dask then gives their run to another one.

    Raises:
        StudyError: no scheduler answers at ``address`` within ``wait_s``, or a worker that is
            there has several threads, of which all but one would wait, or runs Dask's profiler,
            beside which torch cannot export. There may be none yet: a cluster that adapts has
            some when there is work.
    """
    if address is not None:
        with _client(address, wait_s) as client:
            _check_workers(client)
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


def _client(address: str, wait_s: float) -> Client:
    try:
        return Client(address, timeout=wait_s)
    except (OSError, ValueError) as error:
        raise StudyError(f"no Dask scheduler answers at {address}") from error


def _check_workers(client: Client) -> None:
    try:
        faults = client.run(_fault)
    except ModuleNotFoundError as error:
        raise StudyError(f"{error}: start the workers in this repository's folder") from error
    for fault in filter(None, faults.values()):
        raise StudyError(fault)


def _fault(dask_worker: Worker) -> str | None:
    """Tell what keeps a worker from the runs; called on that worker."""
    if dask_worker.state.nthreads != 1:
        return (
            "a worker trains one model at a time: start the workers with --nthreads 1 "
            "(and --nworkers for several on a machine)"
        )
    if dask.config.get(PROFILER):
        return f"torch cannot export beside Dask's profiler: start the workers with {_NO_PROFILER}"
    return None


def _check_own_worker() -> None:
    """Refuse the worker that calls this: it may have come after the others were looked at."""
    if fault := _fault(get_worker()):
        raise StudyError(fault)


def _prepare(task: TaskName, study: Study, folder: Path) -> None:
    _check_own_worker()
    prepare(task, study, folder)


def _perform(run: Run, study: Study, folder: Path, results: Path, ready: None) -> Path:
    _check_own_worker()
    return perform(run, study, folder, results, ready)


def perform_all(
    client: Client,
    study: Study,
    folder: Path,
    results: Path,
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
    notice: Callable[[str], None] = lambda text: None,
) -> Sequence[Path]:
    """Perform whatever runs of the study are missing; return all files of results.

    Args:
        client: the engine. All its workers see ``folder`` and ``results`` at these paths.
        study: what to run.
        folder: texts, teachers, snapshots and artifacts.
        results: one file a run.
        progress: told the runs done, of how many, and the name of the last one.
        notice: told what is awaited where there is no worker yet.

    Raises:
        StudyError: runs failed; the others were performed. Or one met a worker that cannot do
            any, which ends it all: that worker would fail one after the other.
    """
    runs = list(study.runs())
    wanted = missing(study, folder, results)
    done = len(runs) - len(wanted)
    progress(done, len(runs), "")
    ready = {}
    for task in {run.task for run in wanted}:
        # Where no distilled run is missing, nothing is asked of a teacher.
        ways = tuple({run.distilled for run in wanted if run.task == task})
        some = replace(study, distilled=ways)
        ready[task] = client.submit(_prepare, task, some, folder, pure=False)
    futures = {}
    for index, run in enumerate(wanted):
        future = client.submit(
            _perform,
            run,
            study,
            folder,
            results,
            ready[run.task],
            pure=False,
            priority=-index,  # in their order, whichever becomes ready first
        )
        futures[future] = run
    if futures and not client.nthreads():
        address = client.scheduler_info()["address"]
        worker = f"{_NO_PROFILER} dask worker {address} --nthreads 1"
        notice(f"no worker is there yet; waiting for a cluster that adapts, or for '{worker}'")
    failed: dict[Run, str] = {}
    for future in as_completed(futures):
        run = futures[future]
        if future.status == "finished":
            done += 1
            progress(done, len(runs), run.name)
            continue
        error = future.exception()
        if isinstance(error, StudyError):
            raise error
        failed[run] = str(error).partition("\n")[0]
    if failed:
        run, why = next(iter(failed.items()))
        raise StudyError(f"{len(failed)} of {len(runs)} runs failed; {run.name}: {why}")
    return [results / f"{run.name}.json" for run in runs]
