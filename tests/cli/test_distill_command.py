from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.checkpoint import load_checkpoint
from exporter.cli.distill_command import distill
from exporter.cli.export_command import export
from exporter.cli.stop_signals import stop_between_steps
from exporter.cli.training_progress import training_progress
from exporter.training import distill as distilling
from exporter.training import runs
from exporter.training.distill import DistillationPlan
from tests.training.tiny import sentences, teacher_folder

SMALL = (
    *("--layers", "2", "--vocab-size", "100", "--embedding-size", "8", "--hidden-size", "16"),
    *("--intermediate-size", "16", "--heads", "2", "--max-length", "16", "--epochs", "1"),
    *("--batch-size", "16", "--threads", "1"),
)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teacher_folder(tmp_path_factory.mktemp("teacher"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    rows = (json.dumps({"text": f"{s.text} {i}"}) for i, s in enumerate(sentences(100)))
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def run(teacher: Path, data: Path, output: Path, *more: str) -> Result:
    paths = ["--teacher", str(teacher), "--data", str(data), "-o", str(output)]
    return CliRunner().invoke(distill, [*paths, *SMALL, *more])


def test_it_writes_a_student_of_the_asked_shape(teacher: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "student"
    result = run(teacher, data, output, "--scheme", "grouped(2)", "--seed", "3")
    assert result.exit_code == 0, result.output
    loaded = load_checkpoint(output)
    assert (loaded.scheme, loaded.config["num_hidden_layers"], loaded.config["hidden_size"]) == (
        *("grouped(2)", 2, 16),
    )
    assert "Same label as the teacher on 2 texts set aside, after layer 1: " in result.stdout
    assert result.stdout.splitlines()[-1] == f"Written: {output}"
    first, *steps = result.stderr.splitlines()
    assert first == (
        "75% of the student's weights begin as the teacher's; more would with "
        "--intermediate-size 24"
    )
    assert steps == ["asking the teacher …", "distilling …"]
    first = json.loads((output / "log.jsonl").read_text().splitlines()[0])
    assert first["plan"]["schedule"]["seed"] == 3
    assert first["plan"]["schedule"]["epochs"] == 1


def test_a_time_budget_stops_it_and_the_same_command_goes_on(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "student"
    result = run(teacher, data, output, "--time-budget", "1e-9")
    assert result.exit_code == 0, result.output
    assert "Stopped after 1 of 7 steps; the same command goes on from there" in result.stdout
    result = run(teacher, data, output)
    assert result.exit_code == 0, result.output
    assert "Stopped" not in result.stdout
    whole = tmp_path / "whole"
    run(teacher, data, whole)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (output, whole)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("number", "place", "sentence"),
    [
        (signal.SIGINT, "train", "Stopped after 1 of 7 steps; the same command goes on from there"),
        (signal.SIGTERM, "train", "Stopped after 1 of 7 steps; the same command goes on"),
        (
            signal.SIGINT,
            "judge",
            "Stopped after the teacher's answers to 64 of 98 texts; the same command goes on",
        ),
    ],
)
def test_a_signal_stops_it_between_two_steps_and_the_same_command_goes_on(
    teacher: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    place: str,
    sentence: str,
) -> None:
    module = distilling if place == "train" else runs
    real = getattr(module, place)

    def interrupted(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), number)
        return real(*args, **options)

    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patched:
        patched.setattr(module, place, interrupted)
        result = run(teacher, data, tmp_path / "student")
    assert result.exit_code == 128 + number, result.output
    assert sentence in result.stdout
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    result = run(teacher, data, tmp_path / "student")
    assert result.exit_code == 0, result.output
    assert "Stopped" not in result.stdout


def test_a_second_ctrl_c_stops_at_once(
    teacher: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "judge", interrupted)
    result = run(teacher, data, tmp_path / "student")
    assert result.exit_code == 1
    assert "Aborted!" in result.output
    assert not list((tmp_path / "student").iterdir())


def test_one_of_several_processes_takes_a_signal_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with stop_between_steps() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        assert stop.exit_code == 130


def test_the_same_command_again_says_that_it_is_finished(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "student"
    assert run(teacher, data, output).exit_code == 0
    result = run(teacher, data, output)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"Already finished: {output}"
    result = run(teacher, data, output, "--seed", "1")
    assert result.exit_code == 1
    assert "holds a finished student" in result.stderr


@pytest.mark.parametrize(
    ("aside", "expected"),
    [
        (1, "on 1 text set aside, after layer 1: 0.0%, 2: 100.0% (1 text is too few to tell)"),
        (49, "on 49 texts set aside, after layer 1: 0.0%, 2: 100.0% (49 texts are too few to tell"),
        (50, "2: 100.0% (95 % interval of the last: 92.9% to 100.0%)"),
    ],
)
def test_agreement_says_how_sure_it_is(
    teacher: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    aside: int,
    expected: str,
) -> None:
    told = runs.DistillationResult(7, 7, (0.0, 1.0), 98, aside, 0.75)
    monkeypatch.setattr(runs, "run_distillation", lambda *_, **__: told)
    stdout = run(teacher, data, tmp_path).stdout
    assert expected in stdout
    assert "; always its most frequent label: 75.0%" in stdout


def test_what_it_takes_unasked_is_the_plans_own_and_one_thread() -> None:
    plan = DistillationPlan()
    schedule = dataclasses.asdict(plan.schedule)
    defaults = {option.name: option.default for option in distill.params}
    assert defaults["scheme"] == str(plan.sharing)
    own = {**dataclasses.asdict(plan), **schedule}
    both = own.keys() & defaults.keys()
    assert len(both) == 14
    assert {name: defaults[name] for name in both} == {name: own[name] for name in both}
    assert defaults["threads"] == 1


def test_what_has_no_option_is_as_the_plan_has_it(
    teacher: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[DistillationPlan] = []

    def planned(teacher: Path, texts: list[str], plan: DistillationPlan, *_: Any, **__: Any) -> Any:
        plans.append(plan)
        return runs.DistillationResult(1, 1, (1.0,), 98, 2, 0.5)

    monkeypatch.setattr(runs, "run_distillation", planned)
    paths = ["--teacher", str(teacher), "--data", str(data), "-o", str(tmp_path / "student")]
    assert CliRunner().invoke(distill, paths).exit_code == 0
    assert plans == [DistillationPlan()]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--intermediate-size", "24"), "99% of the student's weights begin as the teacher's"),
        (
            ("--hidden-size", "8", "--heads", "4"),
            "0% of the student's weights begin as the teacher's; more would with "
            "--hidden-size 16 --heads 2 --intermediate-size 24",
        ),
        (("--start", "random"), "asking the teacher …"),
    ],
)
def test_it_says_how_much_of_the_student_begins_as_the_teachers(
    teacher: Path, data: Path, tmp_path: Path, more: tuple[str, ...], line: str
) -> None:
    result = run(teacher, data, tmp_path / "student", *more)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0] == line


def test_a_second_command_is_refused_while_one_is_at_work(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "student"
    paths = ["--teacher", str(teacher), "--data", str(data), "-o", str(output)]
    asked = [*paths, *SMALL, "--epochs", "1000000"]
    command = shutil.which("albert-export", path=str(Path(sys.executable).parent))
    assert command is not None
    with subprocess.Popen(
        [command, "distill", *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as first:
        try:
            while not (output / "log.jsonl").is_file() and first.poll() is None:
                time.sleep(0.1)
            assert first.poll() is None
            result = CliRunner().invoke(distill, asked)
            first.terminate()
            printed, errors = first.communicate()
        finally:
            first.kill()
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"Error: another command is writing to {output}: wait until it ends, or choose "
        "another folder"
    ]
    assert first.returncode == 128 + signal.SIGTERM, errors
    assert "the same command goes on from there" in printed
    assert not list(output.glob(".*"))
    begun = [row for row in map(json.loads, (output / "log.jsonl").open()) if "plan" in row]
    assert len(begun) == 1


def test_the_bar_has_a_name_from_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with training_progress():
        pass
    assert "reading" in capsys.readouterr().err


def test_what_is_wrong_is_one_clear_line(teacher: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "student"
    cases = [
        (run(tmp_path / "nothing", data, output), "nothing"),
        (run(teacher, tmp_path / "none.txt", output), "cannot read"),
        (run(teacher, data, output, "--heads", "3"), "no such student: hidden_size 16 is not"),
        (run(teacher, data, output, "--text-column", "body"), "line 1: no 'body' among text"),
        (run(teacher, data, data / "student"), "Not a directory"),
        (run(teacher, data, teacher), "holds a finished student or another model (config.json)"),
    ]
    for result, message in cases:
        assert result.exit_code == 1
        lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1
        assert message in lines[0]
        assert "a fault of albert-export" not in lines[0]
    assert not output.exists()
    for options, message in (
        (("--scheme", "some"), "unknown sharing scheme 'some'"),
        (("--seed", str(2**64)), "is not in the range"),
        (("--learning-rate", "inf"), "inf is not a finite number"),
        (("--time-budget", "nan"), "nan is not a finite number"),
    ):
        result = run(teacher, data, output, *options)
        assert result.exit_code == 2
        assert message in result.stderr


def test_its_folder_is_exported_as_it_is(teacher: Path, data: Path, tmp_path: Path) -> None:
    assert run(teacher, data, tmp_path / "student").exit_code == 0
    paths = [str(tmp_path / "student"), "-o", str(tmp_path / "artifact")]
    result = CliRunner().invoke(export, [*paths, "--elastic-depth"])
    assert result.exit_code == 0, result.output
    artifact = Artifact.load(tmp_path / "artifact")
    assert artifact.manifest["verdict"] == "passed"
    assert artifact.manifest["scheme"] == "all"
    assert sorted(path.name for path in (tmp_path / "artifact").iterdir()) == [
        *("albert-export.json", "config.json", "onnx", "reference.json"),
        *("tokenizer.json", "tokenizer_config.json"),
    ]


def test_two_processes_train_one_student_and_speak_once(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    command = shutil.which("albert-export", path=str(Path(sys.executable).parent))
    assert command is not None
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    paths = ["--teacher", str(teacher), "--data", str(data), "-o", str(tmp_path / "student")]
    done = subprocess.run(
        [*launch, command, "distill", *paths, *SMALL, "--time-budget", "1e-9"],
        capture_output=True,
        text=True,
        env={**os.environ, "ACCELERATE_USE_CPU": "true"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written: ") == 1
    assert done.stderr.count("distilling …") == 1
    result = run(teacher, data, tmp_path / "student")  # its gradients would be other ones
    assert result.exit_code == 1
    assert "holds a run with processes 2, not unset" in result.stderr


def test_its_help_imports_no_torch() -> None:
    code = (
        "import sys; from exporter.cli.distill_command import distill;"
        "distill(['--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--time-budget" in done.stdout
