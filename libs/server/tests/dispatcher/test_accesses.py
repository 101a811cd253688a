import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from a2m_server import accesses
from a2m_server.memory import MemoryTier


class Hanging(MemoryTier):
    """A tier that counts no access until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def touch(self, ids: Sequence[str], at: str) -> None:
        await self.let.wait()
        await super().touch(ids, at)


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    store = Hanging()
    yield store
    store.let.set()


@pytest.fixture
async def client(connect: Any, hanging: Hanging) -> Any:
    connection = connect(hanging)
    await connection.remember({"id": "a", "content": "tea"}, {"id": "b", "content": "coffee", "key": "k"})
    return connection


async def test_a_timeline_never_waits_for_counted_accesses(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accesses, "PATIENCE", 60.0)
    await client.ok("recall", query="tea")
    async with asyncio.timeout(10):
        assert await client.contents() == ["tea", "coffee"]


async def test_reads_wait_once_for_a_store_that_hangs_and_again_when_it_answers(
    client: Any, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accesses, "PATIENCE", 0.01)
    await client.ok("recall", query="tea")
    await client.ok("recall", query="tea")
    monkeypatch.setattr(accesses, "PATIENCE", 60.0)
    async with asyncio.timeout(10):
        for _ in range(3):
            await client.ok("fetch", key="k")
            await client.ok("recall", query="coffee")
    hanging.let.set()
    await client.dispatcher.close()
    await client.ok("recall", query="tea")
    (record,) = (await client.ok("recall", query="tea"))["records"]
    assert record["access_count"] == 3
