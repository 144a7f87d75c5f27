"""Give memory back to the system between two peaks."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["return_freed_memory"]


def return_freed_memory() -> None:
    """Return what has been freed to the system, where the C library would keep it.

    glibc keeps freed blocks of up to 32 MiB, such as the weights of a closed session, and
    the next peak then stands on top of them. Does nothing on other systems.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # absent in other C libraries
    if trim is not None:
        trim(0)
