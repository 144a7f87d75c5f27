from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.cli.main import main
from exporter.models import SharedEncoder, save_folder
from tests.samples import names_in


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def one_line_error(result: Result) -> str:
    """The error message of a failed run, which must be one line and no traceback."""
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if not line.endswith(" …")]
    assert len(errors) == 1
    assert errors[0].startswith("Error: ")
    return errors[0].removeprefix("Error: ")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_missing_model_is_one_line_and_nothing_is_written(here: Path) -> None:
    assert one_line_error(run("missing.pt")) == "missing.pt does not exist"
    assert names_in(here) == []


def test_a_name_no_file_can_have_is_one_line(here: Path) -> None:
    assert "File name too long" in one_line_error(run("m" * 300 + ".pt"))


def test_the_summary_shows_the_numbers_of_the_manifest(
    here: Path, checkpoint: Path, quick_capture: None
) -> None:
    result = run(checkpoint)
    assert result.exit_code == 0
    manifest = Artifact.load(here / "model-onnx", check_hashes=True).manifest
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert f"{manifest['stored_bytes'] / 1e6:.2f} MB" in lines["stored"]
    assert f"{manifest['file_bytes'] / 1e6:.2f} MB" in lines["file"]
    assert f"{manifest['ratio']:.2f}×" in lines["ratio"]
    assert f"{manifest['worst_abs_error']:.1e}" in lines["worst"]
    assert "passed: against PyTorch" in lines["worst"]
    assert lines["artifact:"] == "artifact: model-onnx"
    assert "capturing the graph …" in result.stderr


def test_json_alone_is_on_standard_output(
    here: Path, checkpoint: Path, quick_capture: None
) -> None:
    def refuse(token: str) -> None:
        pytest.fail(f"{token} is no JSON")

    result = run(checkpoint, "--json", "-o", "out")
    assert result.exit_code == 0
    record = json.loads(result.stdout, parse_constant=refuse)
    assert record.pop("artifact") == "out"
    assert record == Artifact.load(here / "out").manifest


def test_an_impossible_tolerance_fails_and_writes_nothing(
    here: Path, checkpoint: Path, quick_capture: None
) -> None:
    message = one_line_error(run(checkpoint, "--atol", "1e-12"))
    assert message.startswith("the exported model is not the same model: ")
    assert "more than 1e-12" in message
    assert names_in(here) == []


def test_a_kept_failure_is_marked_and_still_exits_with_1(
    here: Path, checkpoint: Path, quick_capture: None
) -> None:
    result = run(checkpoint, "--atol", "1e-12", "--keep-failed", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "failed"
    assert Artifact.load(here / "model-onnx").manifest["verdict"] == "failed"
    result = run(checkpoint, "--atol", "1e-12", "--keep-failed", "--force")
    assert result.exit_code == 1
    assert "failed: against PyTorch" in result.stdout
    assert re.search(r"^FAILED fp32: .* differs by .*, more than 1e-12$", result.stdout, re.M)


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "much"])
def test_a_tolerance_that_decides_nothing_is_refused(here: Path, value: str) -> None:
    result = run("model.pt", "--atol", value)
    assert result.exit_code == 2
    assert "Invalid value for '--atol'" in result.stderr


def test_an_artifact_is_replaced_only_with_force(
    here: Path, checkpoint: Path, quick_capture: None
) -> None:
    assert run(checkpoint).exit_code == 0
    (here / "model-onnx/extra").write_text("x")
    assert "--force replaces it" in one_line_error(run(checkpoint))
    assert (here / "model-onnx/extra").exists()
    assert run(checkpoint, "--force").exit_code == 0
    assert not (here / "model-onnx/extra").exists()
    assert names_in(here) == ["model-onnx"]


def test_a_folder_under_a_file_cannot_be_made(here: Path) -> None:
    (here / "file").write_text("x")
    message = one_line_error(run("missing.pt", "-o", "file/out"))
    assert message.startswith("file/out cannot be made")


# Names and places


@pytest.mark.parametrize("name", ["model with spaces", "größer 模型", "[brackets] *.x", "-dash"])
def test_unusual_names_name_the_artifact(
    here: Path, checkpoint: Path, quick_capture: None, name: str
) -> None:
    shutil.copy(checkpoint, here / f"{name}.pt")
    result = run("--", f"{name}.pt") if name.startswith("-") else run(f"{name}.pt")
    assert result.exit_code == 0, result.output
    assert f"artifact: {name}-onnx" in result.stdout
    manifest = Artifact.load(here / f"{name}-onnx", check_hashes=True).manifest
    assert manifest["source"]["name"] == f"{name}.pt"


def test_a_linked_model_in_a_read_only_folder_exports_into_an_empty_folder(
    here: Path, checkpoint: Path, quick_capture: None
) -> None:
    for folder in ("locked", "empty"):
        (here / folder).mkdir()
    shutil.copy(checkpoint, here / "locked/model.pt")
    (here / "locked").chmod(0o555)
    (here / "link.pt").symlink_to("locked/model.pt")
    try:
        assert run("link.pt", "-o", "empty").exit_code == 0
        assert run("locked/../locked/model.pt").exit_code == 0
    finally:
        (here / "locked").chmod(0o755)
    assert Artifact.load(here / "empty").manifest["verdict"] == "passed"
    assert names_in(here) == ["empty", "link.pt", "locked", "model-onnx"]
    assert names_in(here / "locked") == ["model.pt"]


def test_a_parent_folder_gives_its_name_and_not_two_dots(
    here: Path, encoder: SharedEncoder, quick_capture: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_folder(encoder, here / "folder")
    (here / "folder/inner").mkdir()
    monkeypatch.chdir(here / "folder/inner")
    assert run("..").exit_code == 0
    assert names_in(Path()) == ["folder-onnx"]


@pytest.mark.parametrize(
    ("start", "model", "made"),
    [
        (".", "folder", "folder-onnx"),
        (".", "folder/", "folder-onnx"),
        ("folder", ".", "folder/folder-onnx"),
        ("folder/inner", "../../folder", "folder/inner/folder-onnx"),
    ],
)
def test_a_folder_gives_its_name_however_it_is_written(
    here: Path,
    encoder: SharedEncoder,
    quick_capture: None,
    monkeypatch: pytest.MonkeyPatch,
    start: str,
    model: str,
    made: str,
) -> None:
    save_folder(encoder, here / "folder")
    (here / "folder/inner").mkdir()
    monkeypatch.chdir(here / start)
    result = run(model)
    assert result.exit_code == 0, result.output
    manifest = Artifact.load(here / made).manifest
    assert manifest["source"]["name"] == "folder"


def test_the_source_folder_is_never_the_destination(here: Path, encoder: SharedEncoder) -> None:
    save_folder(encoder, here / "folder")
    message = one_line_error(run("folder", "-o", "folder", "--force"))
    assert message == "folder holds the source model; choose another folder with -o"


# Processes


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "exporter", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_another_process_in_another_folder_writes_the_same_bytes(
    here: Path, checkpoint: Path, artifact: Artifact
) -> None:
    # One thread, as in this process: sums in another order would be other measured errors.
    environment = os.environ | {"PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"}
    process = start(checkpoint, "--with-baseline", "--json", "-o", "deep/out", env=environment)
    stdout, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert json.loads(stdout)["verdict"] == "passed"
    files = sorted(p.relative_to(artifact.folder) for p in artifact.folder.rglob("*.*"))
    assert files
    for name in files:
        assert (here / "deep/out" / name).read_bytes() == (artifact.folder / name).read_bytes(), (
            name
        )


def test_an_interrupt_while_capturing_leaves_nothing(here: Path, checkpoint: Path) -> None:
    # A shell's background job ignores interrupts, and so would its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start(checkpoint, "-o", "deep/out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("capturing"):
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in rest
    assert names_in(here) == []
