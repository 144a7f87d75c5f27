"""LoadedModel → ``onnx_ir`` graph, by torch's dynamo exporter."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import IO, Any, cast

import onnx_ir as ir
import torch
from onnxscript import optimizer

from exporter.checkpoint import LoadedModel
from exporter.errors import CaptureError
from exporter.inputs import ModelInputs
from exporter.onnx_files import DEFAULT_OPSET, OPSETS
from exporter.size_guards import check_guards, tighten_limits
from exporter.source_model import FlatModule, export_conditions, first_line, run_flat

__all__ = ["Captured", "capture"]

# No size is 0 or 1, which torch.export would treat as special, and all differ, since it
# takes equal sizes for one dimension.
_EXAMPLE_SIZES = {"batch": 2, "sequence": 7}
_OTHER_SIZES = (5, 11, 13, 17, 19, 23, 29, 31, 6, 4, 3, 2)

# Elements of a computed constant that may be folded; more would store what a node computes.
_FOLD_LIMIT = 1024


@dataclass(frozen=True)
class Captured:
    """A captured graph.

    Args:
        model: the graph.
        constant_bytes: bytes of tensors that the module holds beside its parameters and
            floating-point buffers (plain tensor attributes, buffers of whole numbers); the
            graph must store them too.
        inputs: the model's inputs; limits are what the graph was made for, which may be
            less than the loaded model says.
        notices: what the person should know of such limits and of renamed outputs.
    """

    model: ir.Model
    constant_bytes: int
    inputs: ModelInputs
    notices: tuple[str, ...] = ()


def capture(loaded: LoadedModel, *, opset: int = DEFAULT_OPSET) -> Captured:
    """Capture ``loaded`` as a graph with dynamic batch and sequence.

    Weights stay initializers under PyTorch's names and are read by the graph as
    PyTorch holds them (``[out, in]`` behind a ``Transpose``): nothing is folded per use.

    Args:
        loaded: the model; its modules' training modes are restored afterwards.
        opset: the graph's ONNX opset, one of :data:`OPSETS`.

    Returns:
        A model whose inputs have the names and symbolic sizes of ``loaded.inputs``.

    Raises:
        CaptureError: torch cannot export the module, or fixes a size that must be free, or
            the module computes something else at sizes that the trace did not foresee.
    """
    if opset not in OPSETS:
        raise CaptureError(
            f"opset {opset} is not supported; choose one from {OPSETS[0]} to {OPSETS[-1]}"
        )
    with export_conditions(loaded.module):
        flat, inputs = FlatModule(loaded), loaded.inputs
        notices: tuple[str, ...] = ()
        sizes = _example_sizes(inputs)
        run_flat(flat, loaded, inputs.draw(sizes))
        names, renamed = flat.names, flat.renamed
        program = loaded.program
        if program is None:  # a program of one's own states its limits itself
            program = _export(flat, inputs, sizes)
            inputs, notices = tighten_limits(program, inputs)
            check_guards(program, flat, inputs, sizes)
        model = _translate(program, opset)
        _name_inputs_and_outputs(model, loaded.inputs, names)
        optimizer.optimize_ir(model, should_fold=_keep_weights, output_size_limit=_FOLD_LIMIT)
    model.producer_name = "albert-export"
    model.producer_version = None
    model.graph.name = "main"
    notices += tuple(
        f"output {name!r} is called {other!r}: an input or a weight has its name"
        for name, other in renamed.items()
    )
    return Captured(model, _constant_bytes(program), inputs, notices)


def _constant_bytes(program: torch.export.ExportedProgram) -> int:
    plain = [program.constants[name] for name in program.graph_signature.lifted_tensor_constants]
    whole = [buffer for buffer in program.buffers() if not buffer.is_floating_point()]
    return sum(tensor.nbytes for tensor in (*plain, *whole))


def _example_sizes(inputs: ModelInputs) -> dict[str, int]:
    """Choose a size for each symbol, each another one as far as the limits let it."""
    sizes: dict[str, int] = {}
    for symbol in sorted(inputs.symbols, key=inputs.limit):
        wanted = (_EXAMPLE_SIZES.get(symbol, _OTHER_SIZES[0]), *_OTHER_SIZES)
        limit = inputs.limit(symbol)
        free = (size for size in wanted if size <= limit and size not in sizes.values())
        sizes[symbol] = next(free, min(wanted[0], limit))
    return sizes


def _export(
    flat: FlatModule, inputs: ModelInputs, sizes: Mapping[str, int]
) -> torch.export.ExportedProgram:
    dynamic = tuple(
        {
            axis: torch.export.Dim.DYNAMIC
            for axis, size in enumerate(spec.shape)
            if isinstance(size, str)
        }
        for spec in inputs.specs
    )
    example = tuple(torch.from_numpy(array) for array in inputs.draw(sizes).values())
    try:
        with _muted():
            # The wrapper takes its inputs as one variable argument, hence the nesting.
            return torch.export.export(flat, example, dynamic_shapes=(dynamic,), strict=False)
    except Exception as error:
        reason = _fixed_size(str(error), inputs) or first_line(error)
        raise CaptureError(f"torch.export cannot capture the model: {reason}") from error


@contextmanager
def _muted() -> Iterator[None]:
    """Drop what this thread writes to the standard error stream.

    torch.export prints the graph it has so far when a module branches on data. What other
    threads write, such as a progress display, goes through.
    """
    with redirect_stderr(cast(IO[str], _OtherThreads(sys.stderr))):
        yield


class _OtherThreads:
    """A stream that drops what the thread that made it writes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._dropped = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._dropped else self._stream.write(text)


# How torch.export names a size of an input of ``FlatModule`` that the code turned out to fix.
_FIXED = re.compile(r"\['values'\]\[(\d+)\]\.size\(\)\[(\d+)\] .*? to be a constant \((\d+)\)")


def _fixed_size(message: str, inputs: ModelInputs) -> str | None:
    match = _FIXED.search(message)
    if match is None:
        return None
    spec = inputs.specs[int(match[1])]
    return _fixed(spec.name, spec.shape[int(match[2])], match[3])


def _fixed(name: str, symbol: int | str, size: int | str) -> str:
    return (
        f"it fixes {symbol!r} of input {name!r} to {size}; give it as a fixed size in --input, "
        "or make the model accept any"
    )


def _translate(program: torch.export.ExportedProgram, opset: int) -> ir.Model:
    try:
        exported = torch.onnx.export(
            program, dynamo=True, optimize=False, verbose=False, opset_version=opset
        )
    except Exception as error:
        cause = error.__cause__ or error
        raise CaptureError(f"torch.onnx cannot translate the model: {first_line(cause)}") from error
    assert exported is not None
    if exported.model.opset_imports.get("") != opset:
        raise CaptureError(
            f"the model needs opset {exported.model.opset_imports.get('')}; "
            f"it cannot be written in opset {opset}"
        )
    return exported.model


def _name_inputs_and_outputs(
    model: ir.Model, inputs: ModelInputs, output_names: tuple[str, ...]
) -> None:
    """Give inputs, outputs and symbolic sizes the names the artifact promises."""
    symbols: dict[str, str] = {}
    for value, spec in zip(model.graph.inputs, inputs.specs, strict=True):
        value.name = spec.name
        assert value.shape is not None
        for size, wanted in zip(value.shape, spec.shape, strict=True):
            if isinstance(wanted, str):
                if isinstance(size, int):
                    raise CaptureError(f"the model: {_fixed(spec.name, wanted, size)}")
                symbols[str(size)] = wanted
    _separate_outputs(model.graph)
    for value, name in zip(model.graph.outputs, output_names, strict=True):
        value.name = name
    for value in list(model.graph.initializers.values()):
        assert value.name is not None
        value.name = value.name.removeprefix("module.")  # the wrapper's attribute
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in symbols) or "(?!)")
    for value in _all_values(model.graph):
        if value.shape is not None:
            value.shape = ir.Shape(
                size if isinstance(size, int) else pattern.sub(lambda m: symbols[m[0]], str(size))
                for size in value.shape
            )


def _separate_outputs(graph: ir.Graph) -> None:
    """Copy an output that is also an input, a weight or another output: names are per value."""
    taken = [*graph.inputs, *graph.initializers.values()]
    for index, value in enumerate(graph.outputs):
        if value in taken:
            copy = ir.Value(type=value.type, shape=value.shape)
            graph.append(ir.Node("", "Identity", [value], outputs=[copy]))
            graph.outputs[index] = copy
        taken.append(value)


def _all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in ir.traversal.RecursiveGraphIterator(graph):
        yield from node.outputs


def _keep_weights(node: ir.Node) -> bool | None:
    """Forbid constant folding of a weight.

    Folding ``Transpose(weight)`` at each of twelve uses is how a shared weight becomes
    twelve; small ones would be folded by the optimizer's default.
    """
    for value in node.inputs:
        tensor = value.const_value if value is not None else None
        if tensor is not None and tensor.dtype.is_floating_point() and tensor.size > 1:
            return False
    return None
