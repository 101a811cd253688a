"""The named steps of what crosses tiers, where a test may stop the router; in production nobody watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

Step = Literal[
    "move: locked",
    "move: read",
    "move: copied",
    "move: verified",
    "move: drained",
    "move: deleted",
    "move: settled",
    "forget: resolved",
    "forget: locked",
    "forget: buried",
    "write: found",
    "write: written",
    "write: claimed",
]
"""A step is named by what has just been done."""

Observer = Callable[[Step], Awaitable[None]]


async def unobserved(_: Step) -> None:
    """Watch nothing."""
