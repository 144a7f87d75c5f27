from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from exporter import __version__
from exporter.cli.main import main

HEAVY = ("torch", "onnxruntime", "onnx_ir", "onnx", "transformers", "numpy")


def loaded_by(*arguments: str) -> set[str]:
    """Heavy modules that a run of the command line has loaded when it ends."""
    program = (
        "import sys\n"
        "from exporter.cli.main import main\n"
        f"code = main({list(arguments)!r}, standalone_mode=False)\n"
        f"print('loaded:', *(m for m in {HEAVY!r} if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_help_needs_no_heavy_library() -> None:
    assert loaded_by("--help") == set()


@pytest.mark.parametrize("command", sorted(main.commands))
def test_the_help_of_every_command_is_light_and_describes_every_option(command: str) -> None:
    assert not loaded_by(command, "--help") & {"torch", "onnxruntime", "transformers"}
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[-1] in result.output
            assert parameter.help, parameter.name


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_shows_both_uses(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    for text in ("export", "bench", "albert-export MODEL [OPTIONS]", "albert-export model.pt"):
        assert text in result.output


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.split()[-1] == __version__


def test_what_is_no_command_is_a_model() -> None:
    result = CliRunner().invoke(main, ["no such model.pt", "--json"])
    assert result.exit_code == 1
    assert "no such model.pt does not exist" in result.output


def test_options_may_stand_before_the_model() -> None:
    result = CliRunner().invoke(main, ["--json", "no such model.pt"])
    assert result.exit_code == 1
    assert "no such model.pt does not exist" in result.output


def test_the_module_runs_like_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "--version"], capture_output=True, text=True, check=True
    )
    assert __version__ in done.stdout


def test_a_fault_of_our_own_is_one_line_that_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise TypeError("two\nlines")

    monkeypatch.setattr("exporter.artifact.Artifact.load", broken)
    result = CliRunner().invoke(main, ["bench", "anywhere"])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(
        "Error: a fault of albert-export at exporter/benchmark/prepare.py:"
    )
    assert result.stderr.rstrip().endswith("TypeError: two lines; please report it")
