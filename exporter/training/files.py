"""Writing files so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from exporter.errors import ArtifactError

__all__ = ["CONFIG", "WEIGHTS", "remove_leftovers", "write_atomically", "write_model"]

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_PARTIAL = ".partial"


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to a temporary file beside ``path``, then put it in its place.

    Raises:
        ArtifactError: it cannot be written; what was at ``path`` is still there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}-", suffix=_PARTIAL
        )
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            temporary.chmod(0o644)  # mkstemp's 0600 would travel into a wheel
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writes in ``folder`` that were killed."""
    for path in folder.glob(f".*{_PARTIAL}"):
        path.unlink(missing_ok=True)


def write_model(folder: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write ``config.json`` and ``model.safetensors``: a folder in Hugging Face's form.

    Raises:
        ArtifactError: one cannot be written.
    """
    write_atomically(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    weights = {name: tensor.contiguous() for name, tensor in state.items()}
    write_atomically(folder / WEIGHTS, save(weights, metadata={"format": "pt"}))
