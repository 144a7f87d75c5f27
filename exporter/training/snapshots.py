"""A run's state on disk: written whole or not at all, read back only into the same run."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from exporter.errors import CheckpointError
from exporter.training.files import write_atomically

__all__ = ["Snapshot", "plain", "read_snapshot", "write_snapshot"]


class Part(Protocol):
    """Something with a state: a module, an optimizer."""

    def state_dict(self) -> Any:
        """Return the state."""
        ...

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take the state."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """A file, and what identifies the run it belongs to.

    Args:
        path: the file.
        identity: settings, by name: dataclasses or values that JSON can hold.
    """

    path: Path
    identity: Mapping[str, object]

    def flat(self) -> dict[str, str]:
        """Return the settings as text, by dotted name."""
        return dict(_flatten("", plain(self.identity)))


def write_snapshot(snapshot: Snapshot, step: int, parts: Mapping[str, Part]) -> None:
    """Write the states of ``parts`` after ``step`` steps."""
    buffer = io.BytesIO()
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save({"identity": snapshot.flat(), "step": step, "parts": states}, buffer)
    write_atomically(snapshot.path, buffer.getvalue())


def read_snapshot(snapshot: Snapshot, parts: Mapping[str, Part]) -> int:
    """Load ``parts`` and return how many steps are done; 0 where there is no file.

    Raises:
        CheckpointError: the file is of a run with other settings, or damaged.
    """
    if not snapshot.path.is_file():
        return 0
    try:
        content = torch.load(snapshot.path, weights_only=True, map_location="cpu")
        _check_identity(snapshot, content["identity"])
        for name, part in parts.items():
            part.load_state_dict(content["parts"][name])
        return int(content["step"])
    except (
        OSError,
        pickle.UnpicklingError,
        RuntimeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        first = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{snapshot.path} cannot be resumed from: {first}; delete it to start again"
        ) from error


def _check_identity(snapshot: Snapshot, found: Mapping[str, str]) -> None:
    wanted = snapshot.flat()
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise CheckpointError(
                f"{snapshot.path} holds a run with {name} {found.get(name, 'unset')}, not "
                f"{wanted.get(name, 'unset')}: use another folder, or delete it to start again"
            )


def plain(value: object) -> object:
    """Return dataclasses as mappings, all the way down; other values as they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return value


def _flatten(prefix: str, value: object) -> list[tuple[str, str]]:
    if not isinstance(value, Mapping):
        return [(prefix, json.dumps(value))]
    parts = (_flatten(f"{prefix}.{n}" if prefix else n, item) for n, item in value.items())
    return [pair for part in parts for pair in part]
