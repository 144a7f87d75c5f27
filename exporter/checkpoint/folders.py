"""Read configuration and weights from a folder in Hugging Face's form."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from exporter.checkpoint.detect import describe_weights_file
from exporter.checkpoint.state_dicts import StateDict, find_state_dict, list_some, load_tensors
from exporter.errors import CheckpointError
from exporter.json_files import read_json

__all__ = ["find_weight_files", "read_weights"]

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_INDEXED = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_FOREIGN = {
    "tf_model.h5": "TensorFlow",
    "model.ckpt.index": "TensorFlow 1",
    "saved_model.pb": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "model.onnx": "ONNX",
    "rust_model.ot": "rust-bert",
}


def find_weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights, an index included.

    Raises:
        CheckpointError: none found, or one that is missing, empty or a git-lfs pointer.
    """
    for single, index in zip(_SINGLE, _INDEXED, strict=True):
        if _present(folder / single):
            return _checked(folder, [folder / single])
        if _present(folder / index):
            return _checked(folder, [folder / index, *_shards(folder / index)])
    foreign = [f"{name} ({kind})" for name, kind in _FOREIGN.items() if (folder / name).exists()]
    if foreign:
        raise CheckpointError(
            f"{folder.name} holds {list_some(foreign)} but no PyTorch weights. Convert it: load "
            "it with transformers and save_pretrained() it, which writes model.safetensors"
        )
    raise CheckpointError(
        f"{folder.name} holds no weights; looked for {', '.join(_SINGLE + _INDEXED)}"
    )


def _present(path: Path) -> bool:
    return path.exists() or path.is_symlink()  # a broken link is told apart later


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
        outside = [name for name in names if Path(name).name != name]
    except (KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index.name} is no index of weight files: {error!r}") from error
    if outside:
        raise CheckpointError(f"{index.name} names {outside[0]!r}, which is outside its folder")
    return [index.parent / name for name in names]


def _checked(folder: Path, files: list[Path]) -> list[Path]:
    for file in files:
        if problem := describe_weights_file(file):
            raise CheckpointError(f"{folder.name}/{file.name} {problem}")
    return files


def read_weights(files: list[Path]) -> StateDict:
    """Read the tensors of all ``files``; an index among them is passed over.

    Raises:
        CheckpointError: a file is damaged, or two hold the same name.
    """
    state: StateDict = {}
    for file in files:
        if file.suffix == ".json":
            continue
        part = _read_one(file)
        if twice := sorted(state.keys() & part.keys()):
            raise CheckpointError(f"{file.name} holds {list_some(twice)} again")
        state |= part
    return state


def _read_one(file: Path) -> StateDict:
    if file.suffix != ".safetensors":
        return find_state_dict(load_tensors(file), file.name)
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file.name} is damaged or truncated: {error}") from error
