"""Read an ONNX file, or a folder that holds one, as a source of an export. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass
from onnx_ir.serde import TensorProtoTensor

from exporter.accounting import iter_graphs, tensor_digest
from exporter.checkpoint.digests import hash_files
from exporter.checkpoint.input_specs import merge_limits, parse_all
from exporter.checkpoint.tokenizer_files import find_tokenizer_files
from exporter.errors import CheckpointError
from exporter.inputs import InputSpec, ModelInputs, Role
from exporter.json_files import read_json
from exporter.onnx_files import external_files, read_model

__all__ = ["LoadedGraph", "find_graph_file", "load_graph", "modernize"]

_FIRST_IR_WITH_CONSTANTS = 4
# Names that torch's exporter and onnx's shape inference make up.
_AUTOMATIC = re.compile(r"s\d+|unk__\d+")
_PLACES = ("model.onnx", "onnx/model.onnx")


@dataclass(frozen=True)
class LoadedGraph:
    """A graph read from a file.

    Args:
        model: the graph; weights in external data stay on disk until they are used.
        path: the file.
        inputs: what it takes; id ranges are those of the tables the ids index.
        sha256: hash over the file and its external data.
        config: content of ``config.json`` beside it.
        assets: tokenizer files beside it: name → path.
        notices: what the person should know.
    """

    model: ir.Model
    path: Path
    inputs: ModelInputs
    sha256: str
    config: Mapping[str, Any] | None = None
    assets: Mapping[str, Path] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def find_graph_file(path: Path) -> Path | None:
    """Return the ONNX file that ``path`` is, or that the folder ``path`` holds, if any.

    A folder counts if it has ``model.onnx`` (or ``onnx/model.onnx``) and no PyTorch weights.
    """
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    if any(path.glob("*.safetensors")) or any(path.glob("pytorch_model*")):
        return None
    return next((path / place for place in _PLACES if (path / place).is_file()), None)


def load_graph(path: Path, *, inputs: Sequence[str] = ()) -> LoadedGraph:
    """Read the ONNX file ``path`` and what stands beside it.

    Args:
        path: the file.
        inputs: ``--input`` texts that give sizes names and limits, or ids their range;
            inputs not named follow from the graph.

    Raises:
        CheckpointError: no ONNX model, external data that is refused, an input that the
            graph does not have, or one of a kind that cannot be fed.
    """
    path = path.absolute()
    model = read_model(path)
    _detach(model)
    notices = modernize(model)
    folder = path.parent.parent if path.parent.name == "onnx" else path.parent
    assets, missing = find_tokenizer_files(folder)
    config = folder / "config.json"
    return LoadedGraph(
        model=model,
        path=path,
        inputs=_requested(_graph_inputs(model.graph), inputs),
        sha256=hash_files([path, *external_files(model)]),
        config=read_json(config) if config.is_file() else None,
        assets=assets,
        notices=[*missing, *notices],
    )


def modernize(model: ir.Model) -> list[str]:
    """Let ``model`` hold weights that are no inputs, as passes expect and as they make.

    Before version 4 of the format every weight had to be listed as an input, though nobody
    meant to override it; such models become version 4. In later ones it is a choice, and kept.

    Returns:
        What the person should know.
    """
    if model.ir_version < _FIRST_IR_WITH_CONSTANTS:
        RemoveInitializersFromInputsPass()(model)
        model.ir_version = _FIRST_IR_WITH_CONSTANTS
    overridable = [str(value.name) for value in model.graph.inputs if value.is_initializer()]
    if not overridable:
        return []
    return [
        f"not shared or folded, as callers may override them: {len(overridable)} of the weights "
        f"are inputs as well ({', '.join(overridable[:3])}{', …' if overridable[3:] else ''})"
    ]


def _detach(model: ir.Model) -> None:
    """Take tensors out of the file's protobuf message, equal contents once.

    A single one of them would keep the whole message in memory, copies of weights included.
    """
    contents: dict[str, np.ndarray] = {}
    for graph in iter_graphs(model):
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _own(value.const_value, contents)
        for node in graph:
            for name, attribute in node.attributes.items():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    tensor = _own(attribute.as_tensor(), contents)
                    doc_string = attribute.doc_string
                    node.attributes[name] = ir.AttrTensor(name, tensor, doc_string=doc_string)


def _own(tensor: ir.TensorProtocol, contents: dict[str, np.ndarray]) -> ir.TensorProtocol:
    """Return ``tensor`` over an array of ``contents``, if it lies in a protobuf message.

    Strings and elements of less than a byte stay there: no array holds them as they are.
    """
    small = tensor.dtype.is_string() or tensor.dtype.itemsize < 1
    if small or not isinstance(tensor, TensorProtoTensor):
        return tensor
    digest = tensor_digest(tensor)
    if digest not in contents:
        contents[digest] = tensor.numpy()
    return ir.Tensor(
        contents[digest],
        dtype=tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


def _graph_inputs(graph: ir.Graph) -> ModelInputs:
    required = [value for value in graph.inputs if not value.is_initializer()]
    return ModelInputs(tuple(_spec(value) for value in required), {})


def _spec(value: ir.Value) -> InputSpec:
    name = str(value.name)
    is_tensor = isinstance(value.type, ir.TensorType) and value.dtype != ir.DataType.STRING
    if not is_tensor or value.shape is None or value.dtype is None:
        raise CheckpointError(
            f"input {name!r} of the graph has type {value.type} and shape {value.shape}; "
            "only tensors of numbers with a known rank can be fed"
        )
    dtype = value.dtype.numpy()
    shape = tuple(_size(size, axis) for axis, size in enumerate(value.shape))
    upper = _table_rows(value)
    role: Role = "values"
    if dtype.kind in "iu" and (upper is not None or name.endswith("_ids")):
        role = "ids"
    elif name.endswith("mask"):
        role = "mask"
    return InputSpec(name, np.dtype(dtype).name, shape, role, upper)


def _size(size: int | ir.SymbolicDimProtocol, axis: int) -> int | str:
    """Name a size that nobody named after its place: batch first, then sequence."""
    if isinstance(size, int):
        return size
    text = "" if size.value is None else str(size.value)
    if not text or _AUTOMATIC.fullmatch(text):
        return ("batch", "sequence")[axis] if axis < 2 else text or f"size_{axis}"
    return "batch" if text.startswith("batch") else text


def _table_rows(ids: ir.Value) -> int | None:
    """Return the rows of the smallest table that ``ids`` index, directly or through casts."""
    rows = []
    for node, index in ids.uses():
        if node.op_type == "Gather" and index == 1 and node.attributes.get_int("axis", 0) == 0:
            table = node.inputs[0]
            if table is not None and table.shape and isinstance(table.shape[0], int):
                rows.append(table.shape[0])
        elif node.op_type in ("Cast", "Identity"):
            inner = _table_rows(node.outputs[0])
            rows += [] if inner is None else [inner]
    return min(rows, default=None)


def _requested(inputs: ModelInputs, texts: Sequence[str]) -> ModelInputs:
    """Overlay what ``--input`` says on what the graph says."""
    parsed = {one.name: one for one in parse_all(texts)}
    known = {spec.name: spec for spec in inputs.specs}
    for name, one in parsed.items():
        if name not in known:
            raise CheckpointError(f"--input {name}: this graph takes {', '.join(known)}")
        if one.spec is None:
            continue
        if one.spec.dtype != known[name].dtype or len(one.spec.shape) != len(known[name].shape):
            dims = ",".join(map(str, known[name].shape))
            raise CheckpointError(f"--input {name} must be {known[name].dtype}[{dims}]")
        upper = one.spec.upper or known[name].upper
        known[name] = replace(one.spec, upper=upper)
    return ModelInputs(tuple(known.values()), merge_limits(list(parsed.values())))
