"""What is left in any key is found, whatever leads to it."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from a2m_server.contract import draft, name
from a2m_server.values import EVERYONE, Filter
from a2m_working.layout import bucket_tag
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore

TAG = bucket_tag(None, "gone")
PLANTS = {
    "records": ("HSET", "{bucket}j", "{id}", "{{}}"),
    "states": ("HSET", "{bucket}s", "{id}", "[]"),
    "vectors": ("HSET", "{bucket}v", "{id}", "...."),
    "features": ("HSET", "{bucket}f", "{id}", "AA=="),
    "timelines": ("ZADD", "{bucket}z", "1", "{id}"),
    "arrivals": ("ZADD", "{root}n", "0", "{id}"),
    "ids": ("SET", "{root}i:{id}", TAG),
    "keys": ("HSET", "{root}k:a key", "-", "{id}"),
    "aliases": ("HSET", "{root}a:another id", "-", "{id}"),
}


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[Redis]:
    opened = Redis.from_url(valkey_url)  # pyright: ignore[reportUnknownMemberType] untyped **kwargs
    async with opened as client:
        yield client


@pytest.mark.parametrize("place", PLANTS)
async def test_what_is_planted_in_a_key_is_found(
    store: WorkingStore, settings: WorkingSettings, client: Redis, place: str
) -> None:
    one, other = draft(id=name("a{b*?[c]"), session=name()), draft(session=name())
    await store.write([one, other], EVERYONE)
    await store.forget(Filter(ids=(one.id,)))
    assert (await store.remnants([one.id])).remnants == []
    bucket = f"{settings.prefix}{{{TAG}}}:"
    names = {
        "id": one.id,
        "bucket": bucket,
        "root": bucket if settings.layout == "cluster" else settings.prefix,
    }
    await client.execute_command(*(part.format(**names) for part in PLANTS[place]))  # pyright: ignore
    found = (await store.remnants([one.id, "another"])).remnants
    assert [(r.id, r.place) for r in found] == [(one.id, place)]


async def test_a_claim_that_does_not_expire_is_a_remnant(valkey_url: str, client: Redis) -> None:
    settings = WorkingSettings(url=valkey_url, prefix=name("t") + ":", layout="cluster")
    store = WorkingStore(settings)
    await store.open()
    one = draft()
    await store.write([one], EVERYONE)
    await store.forget(Filter(ids=(one.id,)))
    assert (await store.remnants([one.id])).remnants == []
    assert await client.persist(f"{settings.prefix}d:i:{one.id}")
    assert [r.place for r in (await store.remnants([one.id])).remnants] == ["claims"]
    await store.close()


async def test_a_prefix_is_no_pattern(valkey_url: str) -> None:
    prefix = name("t*[a-z]?\\")
    store = WorkingStore(WorkingSettings(url=valkey_url, prefix=prefix))
    await store.open()
    one = draft()
    await store.write([one], EVERYONE)
    assert {r.place for r in (await store.remnants([one.id])).remnants} == {
        "ids",
        "records",
        "states",
        "timelines",
    }
    await store.close()
