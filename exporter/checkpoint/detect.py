"""What kind of thing a path is, from its first bytes and names. Executes nothing; no torch."""

from __future__ import annotations

import codecs
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.checkpoint.pickles import read_pickle
from exporter.checkpoint.unfinished import holds_unfinished_distillation

__all__ = ["Detected", "Kind", "describe_weights_file", "detect"]

Kind = Literal[
    "exported_program",
    "huggingface",
    "incomplete_folder",
    "onnx",
    "pickled_module",
    "state_dict",
    "reference_folder",
    "unsupported",
]


@dataclass(frozen=True)
class Detected:
    """A kind, and the words about it.

    Args:
        kind: ``state_dict`` is any pickle whose outermost object is a dictionary, with or
            without a configuration; ``incomplete_folder`` and ``unsupported`` cannot be
            loaded.
        detail: for those two, what was found and what would work; for
            ``pickled_module``, the full name of the class.
    """

    kind: Kind
    detail: str = ""


def detect(path: Path) -> Detected:
    """Tell what ``path`` is. Never raises for what a file holds."""
    if path.is_dir():
        return _detect_folder(path)
    if path.is_symlink() and not path.exists():
        return Detected("unsupported", f"is a link to {path.readlink()}, which does not exist")
    if not path.exists():
        return Detected("unsupported", "does not exist")
    if not path.is_file():
        return Detected("unsupported", "is neither a file nor a folder")
    return _detect_file(path)


def describe_weights_file(path: Path) -> str | None:
    """Say why ``path`` cannot be a weights file, or ``None`` if it may be one."""
    if path.is_symlink() and not path.exists():
        return f"is a link to {path.readlink()}, which does not exist: download it again"
    if not path.is_file():
        return "is missing"
    head = _head(path)
    if not head:
        return "is empty"
    if head.startswith(b"version https://git-lfs"):
        return "is a git-lfs pointer, not the file itself: run 'git lfs pull' in its repository"
    return None


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(512)


def _detect_file(path: Path) -> Detected:
    if problem := describe_weights_file(path):
        return Detected("unsupported", problem)
    head = _head(path)
    if head.startswith(b"PK"):
        return _detect_archive(path)
    if head[:1] == b"\x80" or path.suffix in (".pkl", ".pickle"):
        return _detect_pickle(path)
    if head.startswith(b"\x89HDF"):
        return Detected("unsupported", _TENSORFLOW.format("a Keras/TensorFlow .h5 file"))
    if path.suffix == ".msgpack":
        return Detected("unsupported", _TENSORFLOW.format("a Flax .msgpack file"))
    if path.suffix == ".safetensors" or head[8:9] == b"{":
        return Detected(
            "unsupported",
            "is a .safetensors file: weights without a configuration. Give the folder that "
            "holds it together with its config.json",
        )
    # An ONNX file is a protobuf whose first field is ir_version (tag 0x08).
    if path.suffix == ".onnx" or head[:1] == b"\x08":
        return Detected("onnx")
    if _is_text(head):
        return Detected("unsupported", "is a text file, not a model")
    return Detected("unsupported", f"is not a model file ({_WANTED})")


def _is_text(head: bytes) -> bool:
    try:
        # Incremental, because the last character may be cut.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def _detect_archive(path: Path) -> Detected:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return Detected(
            "unsupported",
            f"is truncated or damaged ({path.stat().st_size:,} bytes of a zip archive without "
            "its end): copy or download it again",
        )
    inner = {name.partition("/")[2] or name for name in names}
    if "models/model.json" in inner or "serialized_exported_program.json" in names:
        return Detected("exported_program")
    if any(name.startswith("models/") for name in inner):
        return Detected("unsupported", "is a .pt2 archive without a program called 'model'")
    if any(name.startswith("data/aotinductor/") for name in inner):
        return Detected(
            "unsupported",
            "is a compiled AOTInductor package. Save the program itself with torch.export.save",
        )
    if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
        return Detected(
            "unsupported",
            "is a TorchScript archive, whose graph no longer says which layers are shared. "
            "Save the module's state dict, or torch.export.save(torch.export.export(...)) it",
        )
    if ".data/extern_modules" in inner:
        return Detected("unsupported", "is a torch.package archive. Save the model's state dict")
    if "data.pkl" in inner:
        return _detect_pickle(path)
    return Detected("unsupported", f"is a zip archive, but not one of torch ({_WANTED})")


def _detect_pickle(path: Path) -> Detected:
    try:
        content = read_pickle(path)
    except ValueError as error:
        return Detected("unsupported", f"is a damaged pickle ({error}): copy or download it again")
    if content.top == "dict":
        return Detected("state_dict")
    if content.top in ("list", "tuple", "tensor", "number", ""):
        what = content.top or "value"
        return Detected("unsupported", f"holds a {what}, not a model or a state dict")
    return Detected("pickled_module", content.top)


def _detect_folder(path: Path) -> Detected:
    config = path / "config.json"
    if not config.is_file():
        return Detected("incomplete_folder", _without_config(path))
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        return Detected("incomplete_folder", f"has a config.json that is not JSON: {error}")
    if not isinstance(values, dict):
        return Detected("incomplete_folder", "has a config.json that is not a JSON object")
    if values.get("model_type") == "shared_encoder":
        return Detected("reference_folder")
    return Detected("huggingface")


def _without_config(path: Path) -> str:
    if (path / "saved_model.pb").exists():
        return _TENSORFLOW.format("a TensorFlow SavedModel")
    if (path / "snapshots").is_dir():
        found = sorted(p.name for p in (path / "snapshots").iterdir())
        where = f"snapshots/{found[0]}" if found else "a snapshot below it"
        return f"is the top of a Hugging Face cache entry. Give {path.name}/{where}"
    if holds_unfinished_distillation(path):
        return (
            "holds a distillation that is not finished, and no student yet: give the same "
            "'albert-export distill' command again"
        )
    found = sorted(p.name for p in path.iterdir())
    what = f"holds {', '.join(found[:4])}{', …' if found[4:] else ''}" if found else "is empty"
    return f"has no config.json (it {what}). Give a folder with config.json and model.safetensors"


_WANTED = (
    "wanted: a .pt of this tool, a Hugging Face folder, a .pt2 of torch.export, or an .onnx file"
)
_TENSORFLOW = (
    "is {}. Convert it to PyTorch first: load it with transformers and save_pretrained() it, "
    "which writes model.safetensors"
)
