"""Read JSON objects from files people gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from exporter.errors import CheckpointError

__all__ = ["read_json"]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: the file cannot be read, or holds something else.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{where} is not a JSON object")
    return values
