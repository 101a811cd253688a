"""Several services on one collection: overwrites of one point are told apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from qdrant_client import AsyncQdrantClient

from a2m_protocol.types import Draft
from a2m_semantic import embedding
from a2m_semantic.engine import Point, Stored
from a2m_semantic.server import IN_MEMORY, ServerEngine
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter, Named, Search, Seen


class Replica(ServerEngine):
    """One of several engines on one client, which gives way before each call as a network does."""

    shared = True

    def __init__(self, client: AsyncQdrantClient) -> None:
        super().__init__(IN_MEMORY, "shared", "cosine")
        self._opened = client

    async def open(self) -> None:
        if not await self._client().collection_exists("shared"):
            await self._create(self._client())

    async def close(self) -> None:
        """The client is the test's."""

    async def retrieve(self, ids: Sequence[str], fields: Sequence[str]) -> list[Stored]:
        await asyncio.sleep(0)
        return await super().retrieve(ids, fields)

    async def upsert(self, points: Sequence[Point], expected: frozenset[str]) -> None:
        await asyncio.sleep(0)
        await super().upsert(points, expected)

    def _client(self) -> AsyncQdrantClient:
        assert self._opened is not None
        return self._opened


@pytest.fixture
async def replicas() -> AsyncIterator[list[SemanticStore]]:
    client = AsyncQdrantClient(location=IN_MEMORY)
    stores = [SemanticStore(Replica(client)) for _ in range(3)]
    for store in stores:
        await store.open()
    yield stores
    await client.close()


async def test_no_change_of_a_record_is_lost_between_services(replicas: list[SemanticStore]) -> None:
    await replicas[0].write([Draft(id="k0", content="0", key="k")], EVERYONE)
    rewrites = [
        store.write([Draft(id=f"{at}-{n}", content="x", key="k")], EVERYONE)
        for at, store in enumerate(replicas)
        for n in range(5)
    ]
    touches = [store.touch(["k0"], "2026-01-01T00:00:00.000Z") for store in replicas for _ in range(5)]
    await asyncio.gather(*rewrites, *touches)
    [record] = await replicas[1].read(["k0"])
    assert (record.revision, record.access_count) == (15, 15)


async def test_a_conditional_delete_never_takes_what_another_service_changed(
    replicas: list[SemanticStore],
) -> None:
    for n in range(10):
        name = f"r{n}"
        [written] = await replicas[0].write([Draft(id=name, content="x", key=name)], EVERYONE)
        deleted, [rewritten] = await asyncio.gather(
            replicas[1].delete_if([Named(name, written.etag)], "moved", "t"),
            replicas[2].write([Draft(id=f"{name}-new", content="y", key=name)], EVERYONE),
        )
        kept = (await replicas[0].fetch(name, EVERYONE, vectors=False)).record
        assert kept is not None
        assert kept.content == "y"
        assert (deleted[name] == "changed") == (rewritten.outcome == "replaced")


async def test_the_first_vector_of_any_service_fixes_the_width_of_all(replicas: list[SemanticStore]) -> None:
    await replicas[0].write([Draft(id="v", content="v", embedding=[1.0, 2.0])], EVERYONE)
    found = await replicas[1].search(Search(Filter(), 5, embedding=[1.0, 2.0]))
    assert [record.id for record in found.records] == ["v"]


async def test_each_service_tells_the_width_that_another_brought_in(replicas: list[SemanticStore]) -> None:
    one = Draft(id="v", content="v", embedding=[1.0, 2.0], embedding_model="m")
    [wrote] = await replicas[0].write([one], EVERYONE)
    assert (await replicas[1].info()).dimensions == 2
    await replicas[0].embed([Seen("v", wrote.etag, [1.0, 2.0, 3.0], "wide")])
    assert [(await store.info()).dimensions for store in replicas] == [3, 3, 3]


async def test_a_note_that_there_is_something_to_clear_outlives_what_others_note(
    replicas: list[SemanticStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "STEP", 0.0)
    one = Draft(id="v", content="v", embedding=[1.0, 2.0], embedding_model="m")
    [wrote] = await replicas[0].write([one], EVERYONE)
    await replicas[0].embed([Seen("v", wrote.etag, [1.0, 2.0, 3.0], "wide")])
    # The mean length of texts is noted in the same place.
    await replicas[1].write([Draft(id="long", content=" ".join(map(str, range(60_000))))], EVERYONE)
    await replicas[2].open()
    [cleared] = await replicas[2].read(["v"])
    assert (cleared.embedding, cleared.embedding_model) == (None, None)
