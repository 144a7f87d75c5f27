"""Look into a ``.pt2`` for what :func:`torch.export.load` would execute. Executes nothing."""

from __future__ import annotations

import ast
import io
import json
import pickle
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from exporter.errors import CheckpointError

__all__ = ["check_archive"]

_EXPRESSIONS = (
    *(ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop),
)
_FUNCTIONS = frozenset(
    (
        *("Symbol", "Integer", "Rational", "Float", "Add", "Mul", "Pow", "Mod", "Max", "Min"),
        *("Abs", "floor", "ceiling", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not"),
        *("Equality", "Unequality", "LessThan", "GreaterThan"),
        *("StrictLessThan", "StrictGreaterThan", "Where", "Identity", "PowByNatural"),
        *("FloorDiv", "CeilDiv", "CleanDiv", "ModularIndexing", "PythonMod", "ToFloat"),
        *("IntTrueDiv", "FloatTrueDiv", "TruncToInt", "CeilToInt", "FloorToInt", "RoundToInt"),
    )
)
"""What a size is computed with."""


def check_archive(path: Path) -> None:
    """Refuse what :func:`torch.export.load` would execute.

    Pickled tensors and sample inputs that hold other objects, compiled libraries, custom
    objects, and size expressions that are more than arithmetic.

    Raises:
        CheckpointError: one of these, or a damaged archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = Counter(archive.namelist())
            problem = next(_executables(archive, list(names)), None)
            if twice := [name for name, count in names.items() if count > 1]:
                problem = f"holds {twice[0]} twice"
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} is damaged or truncated: {error}") from error
    if problem:
        raise CheckpointError(
            f"{path.name} {problem}, and reading it would run code from the file, which can "
            "do anything you can. Pass --trust-pickle if you trust whoever made the file"
        )


def _executables(archive: zipfile.ZipFile, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if "/aotinductor/" in name or name.endswith((".so", ".dll", ".dylib")):
            yield f"holds compiled code ({name})"
        elif name.endswith(".json"):
            yield from _suspicious_json(name, json.loads(archive.read(name)))
        elif name.endswith((".pt", ".pkl")) and archive.getinfo(name).file_size:
            try:
                torch.load(io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True)
            except (pickle.UnpicklingError, RuntimeError, EOFError):
                yield f"holds Python objects ({name})"


def _suspicious_json(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        place = str(value.get("path_name") or "")
        if value.get("use_pickle") or place.startswith(("custom_obj", "opaque_obj")):
            yield f"holds Python objects ({place or name})"
        expression = str(value.get("expr_str") or "")
        if expression and not _is_arithmetic(expression):
            yield f"holds the expression {expression!r}"
        for inner in value.values():
            yield from _suspicious_json(name, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _suspicious_json(name, inner)


def _is_arithmetic(expression: str) -> bool:
    """Tell whether sympy's parser, which evaluates Python, would only build a number or size.

    Such texts are ``Add(Symbol('s0', integer=True), Integer(1))`` or ``s0 + 1``. A string
    may stand as a symbol's name only: elsewhere sympy would evaluate it in turn.
    """
    try:
        nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    known = all(isinstance(c.func, ast.Name) and c.func.id in _FUNCTIONS for c in calls)
    names = {
        id(call.args[0])
        for call in calls
        if call.args and isinstance(call.func, ast.Name) and call.func.id == "Symbol"
    }
    return known and all(
        isinstance(node, _EXPRESSIONS)
        and not (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str | bytes)
            and id(node) not in names
        )
        for node in nodes
    )
