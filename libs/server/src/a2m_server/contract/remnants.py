"""Nothing is left of what was deleted: in no index, table, key or cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from a2m_protocol.types import Draft, Record
from a2m_server.contract.samples import draft, name
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, Filter, Named, Tombstone

Delete = Callable[[TierStore, Record], Awaitable[object]]


async def by_forget(store: TierStore, record: Record) -> None:
    await store.forget(Filter(ids=(record.id,)))


async def by_tombstone(store: TierStore, record: Record) -> None:
    await store.bury([Tombstone(record.id, "forgotten", record.seq + 1, record.owner, record.key)])


async def by_move(store: TierStore, record: Record) -> None:
    await store.delete_if([Named(record.id, record.etag)], "moved", "elsewhere")


async def by_undo(store: TierStore, record: Record) -> None:
    await store.delete_if([Named(record.id, record.etag)], "undo", None)


def full() -> Draft:
    """A draft with something for every index."""
    return draft(
        f"a secret {name()}",
        session=name(),
        owner=name("o"),
        key=name("k"),
        group=name("g"),
        role="user",
        metadata={"n": 2**70, "deep": {"a": [1]}},
        uri="urn:x",
        embedding=[1.0, 0.5, 0.25, 0.0],
        embedding_model="m",
        features="AAECAw==",
        arrival="elsewhere 1",
        aliases=[name("alias")],
        provenance={"source": "s"},
    )


async def left(store: TierStore, *ids: str) -> dict[str, set[str]]:
    """The places in which something of each id is found, but for what history keeps."""
    found = await store.remnants(list(ids))
    assert found.unverified == ()
    assert found.checked == ((await store.info()).name,)
    places: dict[str, set[str]] = {record_id: set() for record_id in ids}
    for remnant in found.remnants:
        if not remnant.history:
            places[remnant.id].add(remnant.place)
    return places


class RemnantContract:
    async def test_what_is_held_is_found_where_it_is_kept(self, store: TierStore) -> None:
        one, other = full(), full()
        await store.transfer([one, other])
        absent = name()
        places = await left(store, one.id, absent, one.aliases[0])
        assert len(places[one.id]) > 1
        assert places[absent] == set()
        assert places[one.aliases[0]] != set()

    @pytest.mark.parametrize("delete", [by_forget, by_tombstone, by_move, by_undo])
    async def test_a_deletion_leaves_nothing_in_any_place(self, store: TierStore, delete: Delete) -> None:
        one, other = full(), full()
        await store.transfer([one, other])
        kept = await left(store, other.id)
        [record] = await store.read([one.id])
        await delete(store, record)
        assert await left(store, one.id, one.aliases[0]) == {one.id: set(), one.aliases[0]: set()}
        assert await left(store, other.id) == kept

    async def test_a_fact_that_was_rewritten_from_everywhere_leaves_nothing(self, store: TierStore) -> None:
        key, owner = name("k"), name("o")
        ids: list[str] = []
        for n in range(4):
            one = draft(f"version {n}", key=key, owner=owner, session=name(), embedding=[1.0, n, 0.0, 0.0])
            await store.write([one], EVERYONE)
            ids.append(one.id)
        await store.touch(ids[:1], "2026-01-01T00:00:00.000Z")
        assert (await store.forget(Filter(key_prefix=key))).ids == ids[:1]
        assert await left(store, *ids) == {record_id: set[str]() for record_id in ids}

    async def test_an_id_written_anew_is_found_again(self, store: TierStore) -> None:
        one = draft()
        await store.write([one], EVERYONE)
        await store.forget(Filter(ids=(one.id,)))
        assert (await left(store, one.id))[one.id] == set()
        await store.write([one], EVERYONE)
        assert (await left(store, one.id))[one.id] != set()
