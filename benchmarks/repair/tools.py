"""The tools that bloat a file, each in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import Environment

EXPORTS = Path(__file__).with_name("exports.py")


@dataclass(frozen=True)
class Tool:
    """A command-line tool from PyPI.

    Args:
        name: as in the table.
        environment: where it is installed.
        command: arguments for that environment's Python; ``{source}`` and ``{target}``.
        source: the file it reads, ``target`` the one it writes.
    """

    name: str
    environment: Environment
    command: tuple[str, ...]
    source: str
    target: str


ONNXSLIM = Environment("onnxslim", ("onnxslim==0.1.98", "onnx==1.23.2", "onnxruntime==1.32.0"))
# Its transformers tools need torch, but do not compute with it.
ONNXRUNTIME = Environment(
    "onnxruntime",
    ("onnx==1.23.2", "onnxruntime==1.32.0", "onnx-ir==1.1.0", "sympy==1.14.0"),
    borrows_torch=True,
)

TOOLS = (
    Tool(
        name="onnxslim",
        environment=ONNXSLIM,
        command=("-m", "onnxslim", "{source}", "{target}"),
        source="torchscript.onnx",
        target="slimmed.onnx",
    ),
    Tool(
        name="onnxruntime.transformers.optimizer",
        environment=ONNXRUNTIME,
        command=(
            *("-m", "onnxruntime.transformers.optimizer"),
            *("--input", "{source}", "--output", "{target}"),
            *("--model_type", "bert", "--num_heads", "12", "--hidden_size", "768"),
        ),
        source="torchscript.onnx",
        target="fused.onnx",
    ),
)


def make_files(folder: Path) -> None:
    """Write into ``folder`` whatever is not there yet.

    Raises:
        ToolError: a tool failed, or could not be installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, EXPORTS, folder], check=True)
    for tool in TOOLS:
        target = folder / tool.target
        if target.exists():
            continue
        run_tool(tool, folder, folder / tool.source, target)


def run_tool(tool: Tool, folder: Path, source: Path, target: Path) -> None:
    """Let ``tool``, whose environment is made in ``folder``, turn ``source`` into ``target``.

    Raises:
        ToolError: it failed, or could not be installed.
    """
    print(f"running {tool.name} …", file=sys.stderr)
    unfinished = target.with_suffix(".part.onnx")
    names = {"source": str(source), "target": str(unfinished)}
    command = [part.format(**names) for part in tool.command]
    tool.environment.run(folder, command, target.with_suffix(".log"))
    unfinished.rename(target)
