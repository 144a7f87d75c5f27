"""Bring a state dict into the form a module expects, or say exactly what does not fit."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from exporter.checkpoint.pickles import read_pickle
from exporter.checkpoint.sharing_map import same_bits
from exporter.errors import CheckpointError

__all__ = [
    "StateDict",
    "check_dtypes",
    "check_keys",
    "find_state_dict",
    "fold_ties",
    "list_some",
    "load_tensors",
    "strip_wrappers",
]

StateDict = dict[str, Tensor]

_NESTED = ("state_dict", "model_state_dict", "model")
_LISTED = 5


def load_tensors(path: Path, *, trustable: bool = False) -> Any:
    """Read a file of ``torch.save`` that holds tensors and plain values only.

    Args:
        path: the file.
        trustable: whether the caller offers to trust the file; the message then says so.

    Raises:
        CheckpointError: it holds other objects, or is damaged. Nothing was executed.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        foreign = _foreign_classes(path)
        if not foreign:
            raise CheckpointError(f"{path.name} cannot be read: {_first_line(error)}") from error
        raise CheckpointError(
            f"{path.name} holds Python objects besides tensors ({list_some(foreign)}), and "
            "reading them would run code from the file. Save the state dict alone"
            + (", or pass --trust-pickle if you trust whoever made the file" * trustable)
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path.name} is damaged or truncated: {_first_line(error)}"
        ) from error


def _foreign_classes(path: Path) -> tuple[str, ...]:
    try:
        return read_pickle(path).foreign
    except ValueError:
        return ()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def find_state_dict(values: Any, name: str) -> StateDict:
    """Return the state dict in ``values``: itself, or under a customary key.

    Args:
        values: what a checkpoint file holds.
        name: the file's name, for the message.

    Raises:
        CheckpointError: there is none.
    """
    current = values
    while isinstance(current, Mapping):
        if current and all(isinstance(value, Tensor) for value in current.values()):
            return dict(current)
        inner = [key for key in _NESTED if isinstance(current.get(key), Mapping)]
        if not inner:
            break
        if len(inner) > 1:
            raise CheckpointError(
                f"{name} holds weights under {' and '.join(map(repr, inner))}; keep the one "
                "to export"
            )
        current = current[inner[0]]
    found = f": {list_some(map(str, current))}" if isinstance(current, Mapping) else ""
    raise CheckpointError(
        f"{name} holds no state dict, neither at its top nor under {', '.join(_NESTED)}{found}"
    )


def strip_wrappers(state: Mapping[str, Tensor], expected: Collection[str]) -> StateDict:
    """Remove what wrappers put in front of every name.

    ``module.`` (data parallel), ``_orig_mod.`` (``torch.compile``, at any depth) and any
    other component that *all* names begin with and none of ``expected`` does.

    Raises:
        CheckpointError: two names become one.
    """
    roots = {name.partition(".")[0] for name in expected}
    names = {name: name.replace("_orig_mod.", "") for name in state}
    while True:
        first = {name.partition(".")[0] for name in names.values()}
        if len(first) != 1 or first & roots or not all("." in n for n in names.values()):
            break
        names = {old: name.partition(".")[2] for old, name in names.items()}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        raise CheckpointError(
            f"the state dict holds {list_some(twice)} twice, once with a wrapper's prefix"
        )
    return {names[old]: tensor for old, tensor in state.items()}


def fold_ties(state: Mapping[str, Tensor], ties: Mapping[str, str]) -> StateDict:
    """Keep one tensor for each tied pair, under both names.

    Args:
        state: normalized state dict.
        ties: second name → first name, of tensors the model holds once.

    Returns:
        ``state`` with a missing half of a pair filled from the other one.

    Raises:
        CheckpointError: the two names hold different values.
    """
    folded = dict(state)
    for second, first in ties.items():
        if first in folded and second in folded:
            if not same_bits(folded[first], folded[second]):
                raise CheckpointError(
                    f"{first} and {second} are one tensor in this architecture, but the "
                    "checkpoint holds different values for them. If both are meant, set "
                    '"tie_word_embeddings": false in config.json'
                )
            folded[second] = folded[first]
        elif first in folded:
            folded[second] = folded[first]
        elif second in folded:
            folded[first] = folded[second]
    return folded


def check_keys(state: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """Compare names and shapes.

    Args:
        state: what the checkpoint holds.
        expected: the module's own state dict.
        what: the module, for the message.

    Raises:
        CheckpointError: the difference, limited to a few names and a count.
    """
    missing = [name for name in expected if name not in state]
    unexpected = [name for name in state if name not in expected]
    parts = [
        f"{len(names)} {kind} ({list_some(names)})"
        for kind, names in (("missing", missing), ("unexpected", unexpected))
        if names
    ]
    if parts:
        raise CheckpointError(f"the checkpoint does not fit {what}: {'; '.join(parts)}")
    wrong = [
        f"{name} is {list(state[name].shape)} instead of {list(tensor.shape)}"
        for name, tensor in expected.items()
        if state[name].shape != tensor.shape
    ]
    if wrong:
        raise CheckpointError(f"the checkpoint does not fit {what}: {list_some(wrong)}")


def check_dtypes(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Compare element types with a ``float32`` module, which converts as it copies.

    Returns:
        One notice for each other floating-point type; a tensor under two names counts once.

    Raises:
        CheckpointError: integers where the module wants floating point, as in a
            checkpoint that is quantized already.
    """
    packed = [
        f"{name} is {_dtype_name(tensor)}"
        for name, tensor in state.items()
        if expected[name].is_floating_point() and not tensor.is_floating_point()
    ]
    if packed:
        raise CheckpointError(
            f"the checkpoint is quantized already ({list_some(packed)}): "
            "export from its floating-point original"
        )
    distinct = {id(tensor): tensor for tensor in state.values()}.values()
    counts = Counter(_dtype_name(tensor) for tensor in distinct if tensor.is_floating_point())
    counts.pop("float32", None)
    return [
        f"{count} {dtype} tensor{'s' if count > 1 else ''} converted to float32"
        for dtype, count in counts.items()
    ]


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def list_some(names: Iterable[str]) -> str:
    """Join the first few names; say how many more there are."""
    listed = list(names)
    more = len(listed) - _LISTED
    return ", ".join(listed[:_LISTED]) + (f" and {more} more" if more > 0 else "")
