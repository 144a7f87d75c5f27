"""Read and write ONNX files, external data included.

Reading never follows external data out of the model's own folder; writing uses one file
while protobuf allows.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path, PurePosixPath

import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx_ir.serde import SerdeError

from exporter.accounting import (
    iter_graphs,
    iter_stored,
    iter_stored_tensors,
    stored_bytes,
)
from exporter.errors import CheckpointError

__all__ = [
    "DEFAULT_OPSET",
    "EXTERNAL_DATA_ABOVE_BYTES",
    "OPSETS",
    "external_files",
    "read_model",
    "write_model",
]

DEFAULT_OPSET = 18
OPSETS = range(18, 24)
"""ONNX opsets that a checkpoint can be written in."""

EXTERNAL_DATA_ABOVE_BYTES = 1_900_000_000
"""Tensor bytes above which weights go to ``<file>_data``; protobuf's own limit is 2 GiB."""

_SMALL_TENSOR_BYTES = 256
"""Tensors up to this size stay in the model file, beside whatever data file: shapes, scalars."""


def write_model(model: ir.Model, path: Path) -> None:
    """Write ``model`` to ``path``; a large one's weights go to ``<path>_data`` beside it.

    The name of the data file is the one transformers.js and onnxruntime-web users expect.
    Both files are moved into place when they are complete: a failure leaves what was there,
    and ``model`` may have been read from ``path``. A small model leaves no data file behind.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = f"{path.name}_data"
    overwrites = (path.parent / data).resolve() in external_files(model)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        staged = Path(folder) / path.name
        if stored_bytes(model) > EXTERNAL_DATA_ABOVE_BYTES:
            _inline(model, at_most=_SMALL_TENSOR_BYTES)
            ir.save(model, staged, external_data=data, size_threshold_bytes=_SMALL_TENSOR_BYTES)
        else:
            _inline(model)
            ir.save(model, staged)
        for file in (staged.with_name(data), staged):
            if file.exists():
                file.replace(path.parent / file.name)
            else:
                (path.parent / file.name).unlink(missing_ok=True)
    if overwrites and (path.parent / data).exists():
        _adopt_external(model, read_model(path))


def _adopt_external(model: ir.Model, written: ir.Model) -> None:
    """Let ``model`` read its tensors where ``written`` has them: their old places are gone."""
    for old, new in zip(iter_graphs(model), iter_graphs(written), strict=True):
        for name, value in new.initializers.items():
            if isinstance(value.const_value, ir.ExternalTensor):
                old.initializers[name].const_value = value.const_value


def _inline(model: ir.Model, at_most: float = math.inf) -> None:
    """Read external data into memory: it would be written as a reference to its file.

    Args:
        model: changed in place, to the same values.
        at_most: bytes of the largest tensor to read.
    """
    for graph in iter_graphs(model):
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes <= at_most:
                value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=value.name)


def read_model(path: Path) -> ir.Model:
    """Read an ONNX file; weights stay on disk until they are used.

    Args:
        path: the ``.onnx`` file, which may be a link into a Hugging Face cache.

    Raises:
        CheckpointError: no ONNX model, or external data that is missing, truncated, or
            outside the model's folder (an absolute path, ``..``, a link that leads out).
    """
    path = path.absolute()  # a relative one would switch onnx_ir's own path checks off
    try:
        model = ir.load(path, format="protobuf")
    except DecodeError as error:
        raise CheckpointError(f"{path} is not a readable ONNX file: {error}") from error
    except (SerdeError, ValueError, TypeError, KeyError, EOFError) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if not (model.opset_imports or model.graph.num_nodes()):
        raise CheckpointError(f"{path} is not an ONNX model: it holds no graph")
    _check_texts(path, model)
    for value, tensor in _external_initializers(path, model):
        file = _locate(path, str(tensor.location), tensor.name)
        _check_range(file, tensor)
        value.const_value = ir.ExternalTensor(
            location=file.name,
            offset=tensor.offset,
            length=tensor.length,
            dtype=tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
            base_dir=file.parent,
        )
    return model


def _damaged(path: Path, error: BaseException) -> CheckpointError:
    while error.__cause__ is not None:  # the outer ones name functions of onnx_ir
        error = error.__cause__
    # A failed call speaks of onnx_ir's code, not of the file.
    failed_call = isinstance(error, TypeError) and "argument" in str(error)
    what = "its graph makes no sense" if failed_call else error
    return CheckpointError(f"{path} is damaged: {what}; copy or download it again")


def _check_texts(path: Path, model: ir.Model) -> None:
    """Refuse bytes where a text should be: whatever sorts or joins texts would fail."""
    for graph in iter_graphs(model):
        for node in graph:
            if not all(isinstance(text, str) for text in (node.op_type, node.domain)):
                raise CheckpointError(
                    f"{path} is damaged: it has a node of the type {node.op_type!r}; "
                    "copy or download it again"
                )


def external_files(model: ir.Model) -> list[Path]:
    """Return the external data files that a model read by :func:`read_model` uses."""
    tensors = (tensor for _, tensor in iter_stored_tensors(model))
    paths = {Path(t.path) for t in tensors if isinstance(t, ir.ExternalTensor)}
    return sorted(paths)


def _external_initializers(path: Path, model: ir.Model) -> list[tuple[ir.Value, ir.ExternalTensor]]:
    found = []
    try:
        stored_tensors = list(iter_stored(model))
    except (TypeError, ValueError) as error:
        raise _damaged(path, error) from error
    for stored in stored_tensors:
        if not isinstance(stored.tensor, ir.ExternalTensor):
            continue
        if stored.value is None or not stored.value.is_initializer():
            raise CheckpointError(
                f"tensor {stored.name!r} is an attribute with external data, which is not supported"
            )
        found.append((stored.value, stored.tensor))
    return found


def _locate(model_path: Path, location: str, tensor_name: str) -> Path:
    """Resolve an external data location, or refuse it."""
    what = f"external data {location!r} of tensor {tensor_name!r} in {model_path}"
    relative = PurePosixPath(location)
    if not location or relative.is_absolute() or Path(location).is_absolute():
        raise CheckpointError(f"{what} is refused: it is an absolute path or empty")
    if ".." in relative.parts or "\\" in location:
        raise CheckpointError(f"{what} is refused: it leads out of the model's folder")
    link = model_path.parent / location
    file = link.resolve()
    if not any(file.is_relative_to(root) for root in _roots(model_path.parent)):
        raise CheckpointError(f"{what} is refused: it is a link to {file}, outside the folder")
    if not file.is_file():
        raise CheckpointError(f"{what} is missing; put the file beside the model")
    return file


def _roots(folder: Path) -> list[Path]:
    """Folders that external data may lie in: the model's, and the cache entry it belongs to.

    A Hugging Face cache keeps files in ``blobs`` and links to them from ``snapshots/<rev>``.
    """
    roots = [folder.resolve()]
    for parent in (folder, *folder.parents):
        if parent.parent.name == "snapshots" and (parent.parent.parent / "blobs").is_dir():
            roots.append((parent.parent.parent / "blobs").resolve())
    return roots


def _check_range(file: Path, tensor: ir.ExternalTensor) -> None:
    length = tensor.nbytes if tensor.length is None else tensor.length
    end = (tensor.offset or 0) + length
    size = file.stat().st_size
    if length < tensor.nbytes:
        raise CheckpointError(
            f"{file}: tensor {tensor.name!r} takes {tensor.nbytes:,} bytes but is given "
            f"{length:,}; the model file is damaged"
        )
    if end > size:
        raise CheckpointError(
            f"{file} is truncated: tensor {tensor.name!r} needs bytes up to {end:,}, "
            f"the file has {size:,}; copy or download it again"
        )
