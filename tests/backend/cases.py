"""The backend test cases of the ``onnx`` package, in one form.

Node cases are made when their module is imported; the modules' names are listed without
importing any, so that collecting tests costs nothing. Stored models lie in the package, and so
do nine real networks, as graphs that make up their weights. Nothing is downloaded.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnx.backend.test.case.node as node_package
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

__all__ = [
    "STORED_KINDS",
    "Case",
    "node_cases",
    "node_modules",
    "real_case",
    "real_names",
    "stored_cases",
]

STORED_KINDS = ("simple", "pytorch-converted", "pytorch-operator")

_DATA = Path(onnx.backend.test.__file__).parent / "data"


@dataclass(frozen=True)
class Case:
    """A model, inputs, and what it should give.

    Args:
        name: the package's name for it.
        proto: the model; not to be changed.
        feeds: per data set, by input name: arrays, lists of them, or ``None``.
        expected: per data set, outputs in order.
        rtol: relative tolerance that the package allows a backend.
        atol: the absolute one.
    """

    name: str
    proto: onnx.ModelProto
    feeds: Sequence[dict[str, Any]]
    expected: Sequence[list[Any]]
    rtol: float
    atol: float


def node_modules() -> list[str]:
    """Names of the modules that make node cases: about one per operator."""
    return [name for name, _ in _walk(node_package)]


@cache
def node_cases(module: str) -> list[Case]:
    """Return the cases that one module of :func:`node_modules` makes."""
    made = node_package._NodeTestCases
    start = len(made)
    importlib.import_module(f"{node_package.__name__}.{module}")
    return [_case(case, case.model, case.data_sets) for case in made[start:]]


@cache
def stored_cases(kind: str) -> list[Case]:
    """Return the stored models of one folder, with their stored inputs and outputs."""
    cases = []
    for case in sorted(load_model_tests(kind=kind), key=lambda case: case.name):
        proto = onnx.load(Path(case.model_dir) / "model.onnx")
        folders = sorted(Path(case.model_dir).glob("test_data_set*"))
        sets = [
            (_read(folder, "input", proto.graph.input), _read(folder, "output", proto.graph.output))
            for folder in folders
        ]
        cases.append(_case(case, proto, sets))
    return cases


def real_names() -> list[str]:
    """Names of the networks, whose weights the graphs themselves make up."""
    paths = (_DATA / "light").glob("light_*.onnx")
    return sorted(path.stem.removeprefix("light_") for path in paths)


def real_case(name: str) -> Case:
    """Return one network with the input and output that the package holds for it."""
    (case,) = [c for c in load_model_tests(kind="real") if c.name == f"test_{name}"]
    path = _DATA / "light" / f"light_{name}.onnx"
    proto = onnx.load(path)
    weights = {tensor.name for tensor in proto.graph.initializer}
    given = [value for value in proto.graph.input if value.name not in weights]
    inputs = [Runner.generate_dummy_data(value, name=name) for value in given]
    stored = [
        onnx.load_tensor(path.with_name(f"{path.stem}_output_{index}.pb"))
        for index in range(len(proto.graph.output))
    ]
    return _case(case, proto, [(inputs, stored)])


def _walk(package: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg:
            inner = importlib.import_module(f"{package.__name__}.{info.name}")
            yield from _walk(inner, f"{prefix}{info.name}.")
        else:
            yield f"{prefix}{info.name}", info


def _case(case: Any, proto: onnx.ModelProto, sets: Any) -> Case:
    weights = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input]
    if any(len(inputs) < len(names) for inputs, _ in sets):
        names = [name for name in names if name not in weights]
    return Case(
        name=case.name.removeprefix("test_"),
        proto=proto,
        feeds=[dict(zip(names, map(_array, inputs), strict=True)) for inputs, _ in sets],
        expected=[[_array(output) for output in outputs] for _, outputs in sets],
        rtol=case.rtol,
        atol=case.atol,
    )


def _array(value: Any) -> Any:
    """Show what a case holds as arrays: tensors may be protos, sequences nest."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list):
        return [_array(one) for one in value]
    return value if value is None else np.asarray(value)


def _read(folder: Path, kind: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [_read_one(folder / f"{kind}_{i}.pb", infos[i].type) for i in range(count)]


def _read_one(path: Path, kind: onnx.TypeProto) -> Any:
    content = path.read_bytes()
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if which == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    assert which == "tensor_type"
    return onnx.TensorProto.FromString(content)
