"""Path → :class:`LoadedModel`: a module in memory, its inputs, and who shares what.

Nothing in a file is executed and nothing is downloaded, unless the caller trusts a pickle.
Importing this package is cheap: torch comes with the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exporter.checkpoint.detect import Detected, detect

if TYPE_CHECKING:
    from exporter.checkpoint.loaded import LoadedModel, Source
    from exporter.checkpoint.loading import load_checkpoint
    from exporter.checkpoint.sharing_map import SharedGroup, SharingMap, read_sharing_map

__all__ = [
    "Detected",
    "LoadedModel",
    "SharedGroup",
    "SharingMap",
    "Source",
    "detect",
    "load_checkpoint",
    "read_sharing_map",
]

_HOMES = {
    "LoadedModel": "loaded",
    "SharedGroup": "sharing_map",
    "SharingMap": "sharing_map",
    "Source": "loaded",
    "load_checkpoint": "loading",
    "read_sharing_map": "sharing_map",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
