"""A gate before what changes a tier, so that for a moment nothing does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Gate:
    """Lets changes through; while it is held, none is under way and those that come wait."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._under_way = 0

    @asynccontextmanager
    async def change(self) -> AsyncGenerator[None]:
        await self._open.wait()
        self._under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Hold up what comes, and wait for what is under way; one holder at a time."""
        self._open.clear()
        try:
            await self._idle.wait()
            yield
        finally:
            self._open.set()
