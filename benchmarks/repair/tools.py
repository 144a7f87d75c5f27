"""The tools that bloat a file, each in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

EXPORTS = Path(__file__).with_name("exports.py")


@dataclass(frozen=True)
class Tool:
    """A command-line tool from PyPI.

    Args:
        name: as in the table.
        requirements: what its environment holds, pinned.
        command: arguments for that environment's Python; ``{source}`` and ``{target}``.
        source: the file it reads, ``target`` the one it writes.
        borrows_torch: it needs torch, but does not compute with it: this process's is used.
    """

    name: str
    requirements: tuple[str, ...]
    command: tuple[str, ...]
    source: str
    target: str
    borrows_torch: bool = False


TOOLS = (
    Tool(
        name="onnxslim",
        requirements=("onnxslim==0.1.98", "onnx==1.23.2", "onnxruntime==1.32.0"),
        command=("-m", "onnxslim", "{source}", "{target}"),
        source="torchscript.onnx",
        target="slimmed.onnx",
    ),
    Tool(
        name="onnxruntime.transformers.optimizer",
        requirements=("onnx==1.23.2", "onnxruntime==1.32.0", "sympy==1.14.0"),
        command=(
            *("-m", "onnxruntime.transformers.optimizer"),
            *("--input", "{source}", "--output", "{target}"),
            *("--model_type", "bert", "--num_heads", "12", "--hidden_size", "768"),
        ),
        source="torchscript.onnx",
        target="fused.onnx",
        borrows_torch=True,
    ),
)


def make_files(folder: Path) -> None:
    """Write into ``folder`` whatever is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, EXPORTS, folder], check=True)
    for tool in TOOLS:
        target = folder / tool.target
        if target.exists():
            continue
        run_tool(tool, folder, folder / tool.source, target)


def run_tool(tool: Tool, folder: Path, source: Path, target: Path) -> None:
    """Let ``tool``, whose environment is made in ``folder``, turn ``source`` into ``target``."""
    print(f"running {tool.name} …", file=sys.stderr)
    unfinished = target.with_suffix(".part.onnx")
    python = _environment(tool, folder)
    names = {"source": str(source), "target": str(unfinished)}
    command = [str(python), *(part.format(**names) for part in tool.command)]
    with target.with_suffix(".log").open("w") as lines:
        subprocess.run(command, check=True, stdout=lines, stderr=subprocess.STDOUT)
    unfinished.rename(target)


def _environment(tool: Tool, folder: Path) -> Path:
    home = folder / f"venv-{tool.target.removesuffix('.onnx')}"
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    complete = home / "complete"
    if complete.exists():
        return python
    venv.create(home, with_pip=True, clear=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *tool.requirements], check=True)
    if tool.borrows_torch:
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
        # Its own packages come first; only what it lacks is taken from here.
        link = Path(found.stdout.strip()) / "borrowed.pth"
        link.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    complete.touch()
    return python
