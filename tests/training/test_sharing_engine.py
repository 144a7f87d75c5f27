"""The sharing study on clusters, good ones and others, and the command that leads it there."""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from benchmarks.sharing_tradeoff import engine
from benchmarks.sharing_tradeoff import run as command
from benchmarks.sharing_tradeoff.engine import StudyError, connect, perform_all
from benchmarks.sharing_tradeoff.places import Places
from benchmarks.sharing_tradeoff.settings import SMOKE


@contextmanager
def _cluster(workers: int, threads: int, *, profile: bool = False) -> Iterator[LocalCluster]:
    with (
        dask.config.set({"distributed.worker.profile.enabled": profile}),
        LocalCluster(
            processes=False, n_workers=workers, threads_per_worker=threads, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


_UNFIT = pytest.mark.parametrize(
    ("threads", "profile", "words"),
    [
        (1, True, "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False"),
        (2, False, "start the workers with --nthreads 1"),
    ],
)


@_UNFIT
def test_a_cluster_whose_workers_cannot_do_it_is_refused(
    threads: int, profile: bool, words: str
) -> None:
    with (
        _cluster(1, threads, profile=profile) as cluster,
        pytest.raises(StudyError, match=words),
        connect(cluster.scheduler_address, 1, Path(), wait_s=1),
    ):
        pass


def test_a_cluster_whose_workers_do_not_know_the_study_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(client: Client, function: Any) -> None:
        raise ModuleNotFoundError("No module named 'benchmarks'")

    monkeypatch.setattr(Client, "run", run)
    with (
        _cluster(1, 1) as cluster,
        pytest.raises(StudyError, match=r"'benchmarks': start the workers in this repo"),
        connect(cluster.scheduler_address, 1, Path()),
    ):
        pass


@_UNFIT
def test_a_worker_that_comes_late_and_cannot_do_it_is_named_before_it_begins(
    threads: int, profile: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(engine, "prepare", lambda *given: begun.append(given))
    monkeypatch.setattr(engine, "perform", lambda *given: begun.append(given))
    with (
        _cluster(0, threads, profile=profile) as cluster,
        connect(cluster.scheduler_address, 1, Path()) as client,
        pytest.raises(StudyError, match=f"^[^;]*{words}"),
    ):
        cluster.adapt(minimum=0, maximum=1)
        perform_all(client, SMOKE, tmp_path, tmp_path)
    assert begun == []


def test_a_cluster_without_workers_yet_gets_the_runs_and_a_notice_says_what_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(engine, "prepare", lambda *given: None)
    monkeypatch.setattr(engine, "perform", lambda *given: None)
    with (
        _cluster(0, 1) as cluster,
        connect(cluster.scheduler_address, 1, Path()) as client,
    ):
        cluster.adapt(minimum=0, maximum=1)
        assert len(perform_all(client, SMOKE, tmp_path, tmp_path, notice=told.append)) == 8
    (text,) = told
    assert f"dask worker {cluster.scheduler_address} --nthreads 1" in text
    with _cluster(1, 1) as cluster, connect(cluster.scheduler_address, 1, Path()) as client:
        perform_all(client, SMOKE, tmp_path, tmp_path, notice=told.append)
    assert told == [text]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{port}", "tcp://127.0.0.1", "nonsense", ""])
def test_an_address_without_a_scheduler_is_said_before_anything_is_fetched(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as bound:  # bound, but nobody listens
        bound.bind(("127.0.0.1", 0))
        address = address.format(port=bound.getsockname()[1])
        monkeypatch.setattr(command, "connect", functools.partial(connect, wait_s=1))
        monkeypatch.setattr(command, "collect", lambda *arguments: pytest.fail("fetched"))
        options = ["--study", "smoke", "--results", str(tmp_path), "--work-dir", str(tmp_path)]
        done = CliRunner().invoke(command.main, [*options, "--address", address])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert f"no Dask scheduler answers at {address}" in done.output


@pytest.mark.parametrize(
    ("lacking", "teachers"),
    [
        ("classify-all-distilled-0", ["teacher"]),
        ("classify-all-plain-0", []),
        ("generate-all-distilled-0", []),
    ],
)
def test_a_teacher_is_made_where_its_classifiers_are_missing_and_while_no_worker_waits(
    lacking: str, teachers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def connect(*given: Any) -> Iterator[None]:
        called.append("open")
        yield
        called.append("closed")

    called: list[str] = []
    monkeypatch.setattr(command, "connect", connect)
    for name, word in (("collect", "texts"), ("make_teacher", "teacher"), ("perform_all", "runs")):
        monkeypatch.setattr(command, name, lambda *given, word=word: called.append(word))
    for run in SMOKE.runs():
        content = {"study": SMOKE.digest(run.task)}
        (tmp_path / f"{run.name}.json").write_text(json.dumps(content))
        Places.of(run.task, SMOKE, tmp_path).artifact(run).mkdir(parents=True)
    options = ["--study", "smoke", "--results", str(tmp_path), "--work-dir", str(tmp_path)]
    done = CliRunner().invoke(command.main, options)
    assert (done.exit_code, done.output, called) == (0, "Nothing is missing.\n", [])

    (tmp_path / f"{lacking}.json").unlink()
    assert CliRunner().invoke(command.main, options).exit_code == 0
    runs = ["texts", *teachers, "open", "runs", "closed"]
    assert called == runs
    called.clear()
    assert CliRunner().invoke(command.main, [*options, "--address", "tcp://a:1"]).exit_code == 0
    assert called == ["open", "closed", *runs]
