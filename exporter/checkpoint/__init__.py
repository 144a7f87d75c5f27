"""Path → :class:`LoadedModel`: a module in memory, its inputs, and who shares what.

Nothing in a file is executed and nothing is downloaded, unless the caller trusts a pickle.
"""

from exporter.checkpoint.loaded import LoadedModel, Source
from exporter.checkpoint.loading import load_checkpoint
from exporter.checkpoint.sharing_map import SharedGroup, SharingMap, read_sharing_map

__all__ = [
    "LoadedModel",
    "SharedGroup",
    "SharingMap",
    "Source",
    "load_checkpoint",
    "read_sharing_map",
]
