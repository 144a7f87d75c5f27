from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.benchmark import BenchmarkOptions, read_results
from exporter.cli.bench_command import bench
from exporter.cli.main import main
from exporter.records import Case, Check, Measurement, Memory, parse_record
from tests.benchmark.artifacts import make_artifact
from tests.benchmark.fakes import FakeLauncher, FakeWorker, Script, crash, full_disk

SHORT = ("--sessions", "2", "--min-runs", "4", "--min-seconds", "0", "--seq", "8")


@pytest.fixture
def made(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path / "demo")


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLauncher:
    fake = FakeLauncher(
        {"int8": Script((5.0,)), "fp32": Script((10.0,)), "baseline": Script((20.0,))}
    )
    monkeypatch.setattr("exporter.benchmark.InstalledRuntimes", lambda: fake)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return fake


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments), *SHORT])


def measurements(path: Path) -> list[Measurement]:
    return [record for record in read_results(path) if isinstance(record, Measurement)]


def rows(output: str) -> dict[str, str]:
    return {line.split()[0]: line for line in output.splitlines() if line.strip()}


@pytest.mark.usefixtures("launcher")
def test_the_table_has_a_row_per_model_with_its_ratios(made: Artifact) -> None:
    result = run(made.folder)
    assert result.exit_code == 0, result.output
    assert "1 thread, batch 1, sequence 8" in result.stdout
    table = rows(result.stdout)
    for column in ("median", "p90", "load", "memory", "time / baseline", "time / fp32"):
        assert column in table["model"]
    assert "10.00 ms" in table["fp32"]
    assert table["fp32"].count("0.50× (0.50–0.50)") == 1
    assert table["int8"].count("0.25× (0.25–0.25)") == 1
    assert "1.00×" not in table["baseline"]
    assert "…" not in result.stdout  # nothing was cut off


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(
    ("sessions", "shown", "note"),
    [
        ("1", "0.50× ", "note: 1 session is too few for an interval; use --sessions 4 or more"),
        (
            "2",
            "0.50× (0.50–0.50)",
            "note: 2 sessions are too few for an interval; use --sessions 4 or more",
        ),
        ("3", "0.50× (0.50–0.50)", None),
    ],
)
def test_too_few_sessions_for_an_interval_are_said(
    made: Artifact, sessions: str, shown: str, note: str | None
) -> None:
    result = CliRunner().invoke(
        main, ["bench", str(made.folder), *SHORT, "--sessions", sessions, "--min-runs", "6"]
    )
    assert shown in rows(result.stdout)["fp32"]
    assert ("(0.50" in result.stdout) is (sessions != "1")
    notes = [line for line in result.stdout.splitlines() if line.startswith("note")]
    assert notes == ([note] if note else [])


def test_slower_than_fp32_is_said_plainly(made: Artifact, launcher: FakeLauncher) -> None:
    launcher.scripts["int8"] = Script((30.0,))
    result = run(made.folder)
    assert "! demo: int8 is slower than fp32 (3.00×, 3.00–3.00)" in result.stdout
    once = CliRunner().invoke(main, ["bench", str(made.folder), *SHORT, "--sessions", "1"])
    assert "! demo: int8 is slower than fp32 (3.00×): cpu" in once.stdout


def test_outputs_that_cannot_be_compared_are_a_remark(
    made: Artifact, launcher: FakeLauncher
) -> None:
    check = Check(status="failed", relative_error=None, tolerance=0.01)
    launcher.scripts["int8"] = Script((5.0,), opened={"check": check})
    result = run(made.folder)
    assert "outputs are not those of the reference vectors" in rows(result.stdout)["int8"]
    assert result.exit_code == 1


@pytest.mark.usefixtures("launcher")
def test_json_has_the_records_and_a_summary(made: Artifact) -> None:
    result = run(made.folder, "--json", "--precision", "int8", "--batch", "3", "--label", "lab")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    records = [parse_record(json.dumps(record)) for record in document["records"]]
    assert [record.case.variant for record in records] == ["int8", "baseline", "baseline-int8"]
    assert [record.case.batch for record in records] == [3, 3, 3]
    assert records[0].device.label == "lab"
    summary = document["summary"][0]
    assert summary["case"]["variant"] == "int8"
    assert (summary["median_ms"], summary["mad_ms"], summary["runs"]) == (5.0, 0.0, 4)
    assert summary["ratios"]["baseline"]["value"] == pytest.approx(0.25)
    assert document["notices"] == []


@pytest.mark.usefixtures("launcher")
def test_the_records_name_the_command_that_repeats_them(made: Artifact) -> None:
    result = run(made.folder, "--json", "--no-baseline", "--threads", "1,2")
    command = json.loads(result.stdout)["records"][0]["command"]
    assert command == (
        f"albert-export bench {made.folder} --threads 1,2 --seq 8 --no-baseline "
        "--sessions 2 --min-runs 4 --min-seconds 0.0 --json"
    )


@pytest.mark.usefixtures("launcher")
def test_a_results_file_is_written_and_never_overwritten(made: Artifact, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    assert run(made.folder, "--out", out).exit_code == 0
    before = out.read_bytes()
    assert len(measurements(out)) == 4
    refused = run(made.folder, "--out", out)
    assert refused.exit_code == 1
    assert "--resume continues it, --append adds to it" in refused.stderr
    assert out.read_bytes() == before
    assert run(made.folder, "--out", out, "--append").exit_code == 0
    assert out.read_bytes().startswith(before)
    assert len(measurements(out)) == 8


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(
    made: Artifact, launcher: FakeLauncher, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    arguments = (made.folder, "--out", out, "--threads", "1,2", "--precision", "fp32")
    # two sessions of the first run go well, and the first of the second
    stop = Script((10.0, KeyboardInterrupt()))
    launcher.scripts["fp32"] = [Script(), Script(), Script(), stop]
    result = run(*arguments)
    assert result.exit_code == 130, result.output
    assert "Traceback" not in result.output
    found = measurements(out)
    assert [(r.case.variant, r.case.threads, r.flags) for r in found] == [
        ("fp32", 1, ()),
        ("baseline", 1, ()),
        ("fp32", 2, ("fewer threads", "interrupted")),
        ("baseline", 2, ("fewer threads", "interrupted")),
    ]
    assert "interrupted" in result.stdout  # the table shows it
    with out.open("a") as stream:
        stream.write('{"kind": "measu')  # as a power cut leaves it

    launcher.scripts["fp32"], launcher.log = Script(), []
    result = run(*arguments, "--resume")
    assert result.exit_code == 0, result.output
    assert f"{out} holds 2 of the cases already" in result.stdout
    assert "ends within line 5, which is passed over" in result.stdout
    assert [what for what, _ in launcher.log].count("open") == 4  # two sessions of two models
    assert [(r.case.threads, r.flags) for r in measurements(out)[4:]] == [
        (2, ("fewer threads",))
    ] * 2

    launcher.log = []
    result = run(*arguments, "--resume")
    assert result.exit_code == 0, result.output
    assert launcher.log == []
    assert len(measurements(out)) == 6


def test_a_disk_that_is_full_ends_it_with_all_that_was_measured_shown(
    made: Artifact, launcher: FakeLauncher, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    arguments = (made.folder, "--out", out, "--threads", "1,2", "--no-transfer")
    assert run(*arguments).exit_code == 0
    whole = out.read_bytes().splitlines(keepends=True)
    out.unlink()
    launcher.log = []
    with full_disk(len(whole[0]) + 100):
        result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"Error: cannot write a record to {out}: File too large; those before it are whole; "
        "make room and run the command again with --resume"
    )
    assert {"fp32", "int8", "baseline", "baseline-int8"} <= rows(result.stdout).keys()
    assert len(measurements(out)) == 1
    assert len([what for what, _ in launcher.log if what == "open"]) == 2 * 4  # one run, not two
    assert run(*arguments, "--resume").exit_code == 0
    assert len({record.case for record in measurements(out)}) == 8


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that is not ignored, as it would be where the tests run under nohup."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_being_asked_to_end_is_like_ctrl_c(
    made: Artifact,
    launcher: FakeLauncher,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    runs = FakeWorker.run
    count = 0

    def run_and_stop(worker: FakeWorker) -> float:
        nonlocal count
        count += 1
        if count == 10:
            os.kill(os.getpid(), number)
        return runs(worker)

    before = signal.getsignal(number)
    monkeypatch.setattr(FakeWorker, "run", run_and_stop)
    assert run(made.folder, "--out", tmp_path / "results.jsonl").exit_code == 130
    opened = sorted(name for what, name in launcher.log if what == "open")
    assert sorted(name for what, name in launcher.log if what == "close") == opened
    assert signal.getsignal(number) == before


def test_a_terminal_that_ends_is_ignored_where_the_caller_ignores_it(made: Artifact) -> None:
    seen = []

    class Watching(FakeLauncher):
        def missing(self, case: Case) -> str | None:
            seen.append(signal.getsignal(signal.SIGHUP))
            return "nothing is run here"

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("exporter.benchmark.InstalledRuntimes", Watching)
            run(made.folder)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == [signal.SIG_IGN]


def test_the_defaults_are_those_of_the_library() -> None:
    options = {param.name: param.default for param in bench.params}
    known = BenchmarkOptions()
    for name in ("sessions", "min_runs", "min_seconds", "warm_up", "limit_s"):
        assert options[name] == getattr(known, name), name


@pytest.mark.usefixtures("launcher")
def test_a_case_beyond_the_limit_is_a_row_that_says_so(
    made: Artifact, launcher: FakeLauncher
) -> None:
    launcher.scripts["baseline"] = Script((3000.0,))
    result = run(made.folder, "--limit", "20")
    assert result.exit_code == 0, result.output
    assert "failed, too slow" in rows(result.stdout)["baseline"]
    assert "baseline failed: given up: a run takes 3.0 s" in result.stdout


def test_a_failure_is_a_row_and_no_reason_to_fail(made: Artifact, launcher: FakeLauncher) -> None:
    launcher.scripts["baseline"] = Script(opening=crash("RangeError: out of memory"))
    result = run(made.folder)
    assert result.exit_code == 0, result.output
    assert "failed, likely out of memory" in rows(result.stdout)["baseline"]
    assert "! CPU, 1 thread, 1×8: baseline failed: RangeError: out of memory" in result.stdout
    assert "10.00 ms" in rows(result.stdout)["fp32"]


def test_nothing_measured_is_a_failure(made: Artifact, launcher: FakeLauncher) -> None:
    launcher.absent["node"] = "Node is not installed"
    result = run(made.folder, "--runtime", "node")
    assert result.exit_code == 1
    assert "not run" in rows(result.stdout)["fp32"]
    assert "! Node, 1 thread, 1×8: not run: Node is not installed" in result.stdout
    assert "nothing could be measured" in result.stderr
    mixed = run(made.folder, "--runtime", "node,cpu")
    assert mixed.exit_code == 0
    assert "not run: Node is not installed" in mixed.stdout


def test_outputs_that_differ_are_a_failure(made: Artifact, launcher: FakeLauncher) -> None:
    wrong = Check(status="failed", relative_error=0.5, tolerance=0.01)
    launcher.scripts["int8"] = Script(opened={"check": wrong, "memory": Memory()})
    result = run(made.folder)
    assert result.exit_code == 1
    assert "outputs differ from the reference vectors: demo int8 on cpu" in result.stderr
    assert "outputs differ: error 5.0e-01, allowed 1.0e-02" in rows(result.stdout)["int8"]


@pytest.mark.usefixtures("launcher")
def test_several_artifacts_are_compared_with_the_first(made: Artifact, tmp_path: Path) -> None:
    other = make_artifact(tmp_path / "other", "fp32")
    result = run(made.folder, other.folder, "--variant", "fp32")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("other fp32")]
    assert len(lines) == 1
    assert "1.00× (1.00–1.00)" in lines[0]
    assert "time / demo fp32" in result.stdout


@pytest.mark.usefixtures("launcher")
def test_a_report_is_one_file_with_the_command(made: Artifact, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    result = run(made.folder, "--report", report)
    assert result.exit_code == 0, result.output
    page = report.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html")
    assert "albert-export bench" in page
    assert result.stdout.splitlines()[-1] == f"report: {report}"
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--resume",), 2, "--resume and --append need --out"),
        (("--out", "{tmp}/a/results.jsonl"), 2, "there is no folder"),
        (("--out", "{tmp}/same", "--report", "{tmp}/same"), 2, "name the same file"),
        (("--runtime", "gpu"), 2, "'gpu' is not one of"),
        (("--threads", "1,0"), 2, "0 is not in the range"),
        (("--threads", "1,,2"), 2, "is not a list like a,b,c"),
        (("--min-seconds", "nan"), 2, "not a finite number"),
        (("--seq", "25"), 1, "sequence 25 is beyond the model's maximum 24"),
        (("--variant", "fp16"), 1, "no artifact holds fp16; there are: fp32, int8"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    made: Artifact, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    filled = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    result = CliRunner().invoke(main, ["bench", str(made.folder), *SHORT, *filled])
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("launcher")
def test_a_report_replaces_neither_results_nor_a_manifest(made: Artifact, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    out, same = tmp_path / "same", tmp_path / "sub" / ".." / "same"
    result = run(made.folder, *SHORT, "--out", out, "--report", same)
    assert (result.exit_code, out.exists()) == (2, False)
    assert "name the same file" in result.stderr
    (tmp_path / "albert-export.json").write_text("{}")
    result = run(made.folder, *SHORT, "--report", tmp_path / "albert-export.json")
    assert result.exit_code == 1
    assert "belongs to a model" in result.stderr
    assert (tmp_path / "albert-export.json").read_text() == "{}"


def test_what_is_no_artifact_is_said(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "is no artifact: it holds no albert-export.json" in result.stderr


def cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@pytest.mark.skipif(not cores(), reason="the system has no affinity")
def test_a_real_artifact_on_one_core_needs_no_torch(artifact: Artifact, tmp_path: Path) -> None:
    options = [
        "--threads",
        "1,2",
        "--json",
        *SHORT,
        "--sessions",
        "1",
        "--out",
        str(tmp_path / "results.jsonl"),
    ]
    program = (
        "import os, sys\n"
        f"os.sched_setaffinity(0, {{{min(cores())}}})\n"
        "from exporter.cli.main import main\n"
        f"main({['bench', str(artifact.folder), *options]!r}, standalone_mode=False)\n"
        "loaded = [m for m in ('torch', 'transformers', 'onnxruntime') if m in sys.modules]\n"
        "print('loaded:', *loaded, file=sys.stderr)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stderr.splitlines()[-1] == "loaded:"
    document: dict[str, Any] = json.loads(done.stdout)
    found = measurements(tmp_path / "results.jsonl")
    assert [(r.case.variant, r.case.threads) for r in found] == [
        ("fp32", 1),
        ("baseline", 1),
        ("fp32", 2),
        ("baseline", 2),
    ]
    for record in found:
        assert record.status == "measured"
        assert record.session_runs == (4,)
        assert record.device.usable_cores == 1
        assert ("too few cores" in record.flags) is (record.case.threads == 2)
        assert record.times.session_create
        assert record.times.cold_first
        assert record.times.warm_first
        assert record.memory.added_rss is not None
        assert record.threads_used == 1
    assert found[0].check.status == "passed"
    assert "these figures say nothing about 2 threads" in document["notices"][0]


def workers_of(process: int) -> list[int]:
    """Processes below one that still run, however deep."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found = [process]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]


def test_ctrl_c_in_real_workers_leaves_no_process_and_whole_records(
    artifact: Artifact, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "exporter", "bench", str(artifact.folder)]
    command += ["--runtime", "cpu,node", "--seq", "8", "--no-baseline", "--no-transfer"]
    command += ["--out", str(out), "--sessions", "1", "--min-runs", "4", "--min-seconds"]
    started = subprocess.Popen([*command, "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 30
    while not (workers := workers_of(started.pid)) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(1.5)  # the model is open, and being measured
    started.send_signal(signal.SIGINT)
    output, errors = started.communicate(timeout=30)
    assert started.returncode == 130, errors
    assert b"Traceback" not in errors + output
    assert workers
    assert not [process for process in workers if Path(f"/proc/{process}").exists()]
    (kept,) = measurements(out)
    assert (kept.case.runtime, kept.flags[:1]) == ("cpu", ("interrupted",))
    assert len(kept.samples_ms) >= 3
    done = subprocess.run([*command, "0", "--resume"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = measurements(out)[1:]
    assert [(r.case.runtime, r.status) for r in again] == [
        ("cpu", "measured"),
        ("node", "measured"),
    ]
    assert all("interrupted" not in record.flags for record in again)
