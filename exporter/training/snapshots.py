"""A run's state on disk: written whole or not at all, read back only into the same run."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from exporter.atomic_writing import write_atomically
from exporter.errors import CheckpointError
from exporter.json_files import read_json

__all__ = [
    "IDENTITY",
    "Snapshot",
    "check_identity",
    "check_snapshot",
    "plain",
    "read_snapshot",
    "write_identity",
    "write_snapshot",
]

IDENTITY = "identity.json"
"""Says of a finished result what it is made of."""


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
        return _flat(self.identity)


def write_snapshot(snapshot: Snapshot, step: int, parts: Mapping[str, Part]) -> None:
    """Write the states of ``parts`` after ``step`` steps.

    Raises:
        ArtifactError: the file cannot be written.
    """
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
    with _reading(snapshot.path) as content:
        wanted = snapshot.flat()
        found = content["identity"]
        _compare(snapshot.path, [*wanted, *found], wanted, found)
        for name, part in parts.items():
            part.load_state_dict(content["parts"][name])
        return int(content["step"])


def check_snapshot(snapshot: Snapshot) -> None:
    """Compare a file, where there is one, with those settings alone that are known so far.

    Raises:
        CheckpointError: the file is of a run with other settings, or damaged.
    """
    if snapshot.path.is_file():
        with _reading(snapshot.path) as content:
            wanted = snapshot.flat()
            _compare(snapshot.path, wanted, wanted, content["identity"])


def write_identity(folder: Path, identity: Mapping[str, object]) -> None:
    """Write beside a finished result, as the last of its files, what it is made of.

    Raises:
        ArtifactError: the file cannot be written.
    """
    write_atomically(folder / IDENTITY, (json.dumps(_flat(identity), indent=2) + "\n").encode())


def check_identity(folder: Path, identity: Mapping[str, object]) -> bool:
    """Tell whether ``folder`` holds a finished result, which then is made of just this.

    Raises:
        CheckpointError: it is made of something else, or the file is damaged.
    """
    if not (folder / IDENTITY).is_file():
        return False
    wanted, found = _flat(identity), read_json(folder / IDENTITY)
    _compare(folder, [*wanted, *found], wanted, found)
    return True


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """Give the content of a snapshot; what fails while it is used is the snapshot's fault."""
    try:
        yield torch.load(path, weights_only=True, map_location="cpu")
    except (
        OSError,
        EOFError,
        pickle.UnpicklingError,
        RuntimeError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        # PyTorch's own words on these advise to read the file unsafely, or are none.
        broken = isinstance(error, (EOFError, pickle.UnpicklingError))
        reason = "it is damaged" if broken else str(error).partition("\n")[0]
        raise CheckpointError(
            f"{path} cannot be resumed from: {reason}; delete it to start again"
        ) from error


def _compare(
    path: Path, names: Iterable[str], wanted: Mapping[str, str], found: Mapping[str, str]
) -> None:
    for name in names:
        if wanted.get(name) != found.get(name):
            raise CheckpointError(
                f"{path} holds a run with {name} {found.get(name, 'unset')}, not "
                f"{wanted.get(name, 'unset')}: use another folder, or delete it to start again"
            )


def plain(value: object) -> object:
    """Return dataclasses as mappings, all the way down; other values as they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return value


def _flat(identity: Mapping[str, object]) -> dict[str, str]:
    return dict(_flatten("", plain(identity)))


def _flatten(prefix: str, value: object) -> list[tuple[str, str]]:
    if not isinstance(value, Mapping):
        return [(prefix, json.dumps(value))]
    parts = (_flatten(f"{prefix}.{n}" if prefix else n, item) for n, item in value.items())
    return [pair for part in parts for pair in part]
