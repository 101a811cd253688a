"""What glibc does with memory that was freed; with another C library, nothing."""

from __future__ import annotations

import contextlib
import ctypes

M_ARENA_MAX = -8


def share() -> None:
    """Have all threads of this process allocate from one heap.

    Each would have its own otherwise, and what one shard leaves free in several is no room for the next.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def trim() -> None:
    """Give what is free back to the system."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
