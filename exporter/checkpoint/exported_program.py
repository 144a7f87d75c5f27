"""Load a ``.pt2`` of ``torch.export``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree as pytree

from exporter.checkpoint.input_specs import WELL_KNOWN
from exporter.checkpoint.loaded import LoadedModel, Source
from exporter.checkpoint.sharing_map import read_sharing_map
from exporter.checkpoint.state_dicts import list_some
from exporter.errors import CheckpointError
from exporter.inputs import InputSpec, ModelInputs, Role

__all__ = ["ProgramByName", "bounds_of", "build_program", "load_program", "user_tensors"]


_HALF = (torch.float16, torch.bfloat16)


def load_program(path: Path) -> ExportedProgram:
    """Read the program; unless the file is trusted, ``check_archive`` comes first.

    Raises:
        CheckpointError: this version of torch cannot read it.
    """
    try:
        return torch.export.load(path)
    except Exception as error:  # a foreign schema fails anywhere
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{path.name} cannot be read by torch {torch.__version__} ({why}): export it again "
            "with this version"
        ) from error


class ProgramByName(nn.Module):
    """A program's module, called with its tensors by name, however it was exported."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.program_module = program.module()
        self.structure = program.call_spec.in_spec
        self.arguments = [
            (spec.arg.name, spec.arg.value if isinstance(spec.arg, ConstantArgument) else None)
            for spec in program.graph_signature.input_specs
            if spec.kind is InputKind.USER_INPUT
        ]

    def forward(self, **tensors: Tensor) -> Any:
        """Take the program's inputs by name; return what it returns."""
        flat = [tensors.get(name, constant) for name, constant in self.arguments]
        positional, named = pytree.tree_unflatten(flat, self.structure)
        return self.program_module(*positional, **named)


def build_program(
    program: ExportedProgram, source: Source, requested: Sequence[str]
) -> LoadedModel:
    """Describe an exported program from its own signature.

    Raises:
        CheckpointError: weights below ``float32``; inputs that are asked for though the
            program fixes them; a size that is computed from another one, or has a smallest value.
    """
    half = sorted({str(t.dtype) for t in program.state_dict.values() if t.dtype in _HALF})
    if half:
        raise CheckpointError(
            f"{source.name} computes in {half[0].removeprefix('torch.')}, fixed in its graph: "
            "convert the module with .float() and export it again"
        )
    inputs = _inputs(program)
    names = [spec.name for spec in inputs.specs]
    if requested and sorted(requested) != sorted(names):
        raise CheckpointError(
            f"{source.name} fixes its own inputs ({', '.join(names)}): leave --input out, or "
            "export the program again"
        )
    fixed = [
        f"{spec.name}[{','.join(str(size) for size in spec.shape)}]"
        for spec in inputs.specs
        if any(isinstance(size, int) for size in spec.shape)
    ]
    notices = []
    if fixed:
        notices.append(
            f"sizes are fixed in the program: {list_some(fixed)}. For others export it again "
            "with dynamic_shapes"
        )
    module = ProgramByName(program)
    return LoadedModel(
        module=module,
        inputs=inputs,
        output_names=(),
        sharing=read_sharing_map(module.program_module),
        scheme="unknown",
        source=source,
        program=program,
        notices=notices,
    )


def user_tensors(program: ExportedProgram) -> list[torch.fx.Node]:
    """Return the placeholders of the tensors a program is called with, in order."""
    users = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    }
    return [n for n in program.graph.nodes if n.op == "placeholder" and n.name in users]


def bounds_of(program: ExportedProgram, size: torch.SymInt) -> tuple[int, int | None]:
    """Return the smallest size that a program was made for, and the largest if there is one.

    A smallest size of 2 says nothing: torch treats 0 and 1 apart, and accepts 1 there.
    """
    bounds = program.range_constraints.get(size.node.expr)
    if bounds is None:
        return 0, None
    return int(bounds.lower), int(bounds.upper) if bounds.upper.is_Integer else None


def _inputs(program: ExportedProgram) -> ModelInputs:
    symbols: dict[str, str] = {}
    limits: dict[str, int] = {}
    specs = []
    for node in user_tensors(program):
        value = node.meta["val"]
        shape = tuple(
            _size(size, axis, node.name, symbols, limits, program)
            for axis, size in enumerate(value.shape)
        )
        dtype = str(value.dtype).removeprefix("torch.")
        upper = _rows_reached(node)
        specs.append(InputSpec(node.name, dtype, shape, _role(node.name, dtype, upper), upper))
    return ModelInputs(tuple(specs), limits)


def _role(name: str, dtype: str, upper: int | None) -> Role:
    if upper is not None:
        return "ids"
    if name.endswith("mask"):
        return "mask"
    return "ids" if WELL_KNOWN.get(name) == "ids" and dtype.startswith("int") else "values"


def _size(
    size: int | torch.SymInt,
    axis: int,
    name: str,
    symbols: dict[str, str],
    limits: dict[str, int],
    program: ExportedProgram,
) -> int | str:
    """Return a fixed size, or a symbol's name; the file keeps symbols but not their names."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if not expression.is_Symbol:
        raise CheckpointError(
            f"input {name} has a size computed from another one ({expression}), which is not "
            "supported: export the program with independent sizes"
        )
    key = str(expression)
    if key not in symbols:
        customary = ("batch", "sequence")[axis] if axis < 2 else key
        symbols[key] = customary if customary not in symbols.values() else key
        lower, upper = bounds_of(program, size)
        if lower > 2:
            raise CheckpointError(
                f"input {name} takes {symbols[key]} only from {lower}, and a graph cannot refuse "
                "less: export the program again without a smallest size, or with a fixed one"
            )
        if upper is not None:
            limits[symbols[key]] = upper
    return symbols[key]


def _rows_reached(node: torch.fx.Node) -> int | None:
    """Rows of the smallest embedding that takes ``node`` as its ids, directly."""
    rows = []
    for user in node.users:
        if user.target is torch.ops.aten.embedding.default and user.args[1] is node:
            table = user.args[0]
            if isinstance(table, torch.fx.Node):
                rows.append(int(table.meta["val"].shape[0]))  # [rows, width]
    return min(rows, default=None)
