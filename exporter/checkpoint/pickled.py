"""Load a pickled module, which runs code from the file: only for those who trust it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from exporter.checkpoint.loaded import LoadedModel, Source
from exporter.checkpoint.own_inputs import derive_inputs
from exporter.checkpoint.probing import record_probe
from exporter.checkpoint.scheme import describe_calls
from exporter.checkpoint.sharing_map import read_sharing_map
from exporter.errors import CheckpointError

__all__ = ["build_pickled", "find_module", "load_trusted", "refuse"]


def refuse(path: Path, class_name: str) -> CheckpointError:
    """Return the error for a pickled object of ``class_name`` that nobody vouches for."""
    return CheckpointError(
        f"{path.name} is a pickled object of class {class_name}. Reading it runs code from "
        "the file, which can do anything you can. Save the state dict or a .pt2 of "
        "torch.export instead, or pass --trust-pickle if you trust whoever made the file"
    )


def load_trusted(path: Path, import_paths: Sequence[Path]) -> Any:
    """Unpickle ``path``, running whatever it says.

    Args:
        path: a file of ``torch.save``.
        import_paths: folders put in front of ``sys.path`` during the load.

    Raises:
        CheckpointError: a class that cannot be imported, or a failure of its code.
    """
    try:
        with _importable_from(import_paths):
            return torch.load(path, map_location="cpu", weights_only=False)
    except ModuleNotFoundError as error:
        raise CheckpointError(
            f"{path.name} needs the Python module {error.name!r}, which cannot be imported: "
            "pass --import-path with the folder that holds it, or install it"
        ) from error
    except AttributeError as error:
        if "__main__" in str(error):
            raise CheckpointError(
                f"{path.name} was pickled by the script that defined its class, so the class "
                f"is recorded as one of __main__ ({error}). Move the class into a module of "
                "its own, save again from a script that imports it, and pass --import-path"
            ) from error
        raise CheckpointError(
            f"{path.name} names a class its module does not have ({error}): pass "
            "--import-path with the folder of the version it was saved with"
        ) from error
    except Exception as error:  # code of the file: anything can happen
        raise CheckpointError(
            f"{path.name} cannot be unpickled: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _importable_from(folders: Sequence[Path]) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [str(folder.resolve()) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def find_module(value: Any) -> nn.Module | None:
    """Return the module in what a pickle holds: itself, or the only one in a dictionary.

    What wraps it for parallel training or compilation is taken off.
    """
    if isinstance(value, Mapping):
        modules = [item for item in value.values() if isinstance(item, nn.Module)]
        value = modules[0] if len(modules) == 1 else None
    while isinstance(value, nn.DataParallel | nn.parallel.DistributedDataParallel):
        value = value.module
    value = getattr(value, "_orig_mod", value)
    return value if isinstance(value, nn.Module) else None


def build_pickled(module: nn.Module, source: Source, requested: Sequence[str]) -> LoadedModel:
    """Describe a module of one's own; a known Hugging Face one is rebuilt from its parts.

    Raises:
        CheckpointError: its inputs cannot be told from its ``forward``.
    """
    if _is_huggingface(module):
        from exporter.checkpoint.huggingface import build_huggingface

        config = {**module.config.to_dict(), "architectures": [type(module).__name__]}  # type: ignore[operator,union-attr]
        loaded = build_huggingface(config, module.state_dict(), source, requested)
        loaded.module.train(module.training)
        return loaded
    notices = _upcast(module)
    inputs, more = derive_inputs(module, requested)
    record = record_probe(module, inputs)
    return LoadedModel(
        module=module,
        inputs=inputs,
        output_names=(),
        sharing=read_sharing_map(module, record),
        scheme=describe_calls(record),
        source=source,
        notices=[*notices, *more],
    )


def _is_huggingface(module: nn.Module) -> bool:
    return type(module).__module__.startswith(
        ("transformers.models.albert.", "transformers.models.bert.")
    )


def _upcast(module: nn.Module) -> list[str]:
    others = [
        tensor.dtype
        for tensor in (*module.parameters(), *module.buffers())
        if tensor.is_floating_point() and tensor.dtype != torch.float32
    ]
    if not others:
        return []
    module.float()
    kinds = ", ".join(sorted({str(dtype).removeprefix("torch.") for dtype in others}))
    return [f"{len(others)} {kinds} tensor{'s' * (len(others) > 1)} converted to float32"]
