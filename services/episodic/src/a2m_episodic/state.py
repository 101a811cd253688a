"""What a process knows of the store and need not ask each time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class State:
    """`dimensions` once they are fixed, `indexed` once vectors have an index.

    `baked` is the mean length of a record that new weights assume. `work` is set when there may be something
    for the maintenance to do at once.
    """

    dimensions: int | None = None
    indexed: bool = False
    baked: float = 20.0
    work: asyncio.Event = field(default_factory=asyncio.Event)

    def fixed(self, dimensions: int) -> None:
        """The width of vectors, now that it is committed; an index is of one width."""
        if self.dimensions != dimensions:
            self.dimensions = dimensions
            self.indexed = False
            self.work.set()
