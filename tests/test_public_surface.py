from __future__ import annotations

import ast
import importlib
import statistics
from pathlib import Path

import pytest

import exporter

ROOT = Path(exporter.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__main__.py")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", [module_name(path) for path in FILES])
def test_every_module_imports_and_has_what_its_all_promises(name: str) -> None:
    module = importlib.import_module(name)
    promised = getattr(module, "__all__", [])
    assert len(set(promised)) == len(promised)
    for public in promised:
        assert hasattr(module, public), f"{name}.{public}"


def test_every_module_with_public_definitions_says_which_they_are() -> None:
    silent = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defines = any(
            isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            for node in tree.body
        )
        assigned = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        if defines and "__all__" not in assigned:
            silent.append(module_name(path))
    assert silent == []


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in FILES
    }
    assert {name: count for name, count in lengths.items() if count > 500} == {}
    assert statistics.median(lengths.values()) <= 250


def test_library_code_neither_prints_nor_exits() -> None:
    offenders = []
    for path in FILES:
        if path.parent.name == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in ("print", "exit", "quit", "sys.exit", "os._exit"):
                offenders.append(f"{module_name(path)}: {called}")
    assert offenders == []
