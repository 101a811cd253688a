"""What the store does when the server is killed, starved, flushed of scripts or cut off."""

import asyncio
from itertools import count

import pytest
from redis.asyncio import Redis

from a2m_engines.valkey import Valkey
from a2m_protocol.errors import A2MError
from a2m_server.contract import draft, name, within
from a2m_server.values import EVERYONE, Filter, Named, Page
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore


async def test_a_killed_server_loses_no_acknowledged_write(own: WorkingStore, own_valkey: Valkey) -> None:
    session = name()
    acknowledged: list[str] = []

    async def append(writer: int) -> None:
        for n in count():
            one = draft(f"{writer} {n}", session=session)
            await own.write([one], EVERYONE)
            acknowledged.append(one.id)
            if len(acknowledged) >= wanted:
                enough.set()

    for _ in range(3):
        enough, wanted = asyncio.Event(), len(acknowledged) + 300
        writers = [asyncio.create_task(append(writer)) for writer in range(8)]
        await enough.wait()
        own_valkey.kill()
        ends = await asyncio.gather(*writers, return_exceptions=True)
        assert all(isinstance(end, A2MError) and end.retryable for end in ends)
        own_valkey.start()
        held = {r.id for r in (await own.timeline(Page(within(session)))).records}
        assert held.issuperset(acknowledged)


async def test_a_restarted_server_is_used_again_without_a_failed_call(
    own: WorkingStore, own_valkey: Valkey
) -> None:
    session = name()
    await own.write([draft("before", session=session)], EVERYONE)
    own_valkey.stop()
    with pytest.raises(A2MError) as down:
        await own.write([draft()], EVERYONE)
    assert down.value.retryable
    with pytest.raises(A2MError):
        await own.ready()
    own_valkey.start()
    await own.write([draft("after", session=session)], EVERYONE)
    assert [r.content for r in (await own.timeline(Page(within(session)))).records] == ["before", "after"]


async def test_a_cut_connection_is_made_again(single: WorkingStore, valkey_url: str) -> None:
    session = name()
    await single.write([draft(session=session)], EVERYONE)
    async with Redis.from_url(valkey_url) as client:
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert len((await single.timeline(Page(within(session)))).records) == 1


async def test_forgotten_scripts_are_taught_again(store: WorkingStore, valkey_url: str) -> None:
    session = name()
    async with Redis.from_url(valkey_url) as client:
        await client.script_flush()
        await store.write([draft(session=session)], EVERYONE)
        await client.script_flush()
        assert len((await store.timeline(Page(within(session)))).records) == 1


async def test_a_full_server_refuses_whole_and_says_why(own: WorkingStore, own_valkey: Valkey) -> None:
    session = name()
    held = draft(session=session)
    [written] = await own.write([held], EVERYONE)
    async with Redis.from_url(own_valkey.url) as client:
        await client.config_set("maxmemory", "1mb")
        keys = await client.dbsize()
        with pytest.raises(A2MError) as full:
            await own.write([draft("x" * 1000, session=session) for _ in range(50)], EVERYONE)
        assert full.value.retryable
        assert "maxmemory" in full.value.message
        assert await client.dbsize() == keys
        assert len((await own.timeline(Page(within(session)))).records) == 1
        # A full server can still be emptied.
        assert await own.delete_if([Named(held.id, written.etag)], "moved", "episodic") == {
            held.id: "deleted"
        }
        await client.config_set("maxmemory", "0")
    assert (await own.write([held], EVERYONE))[0].outcome == "moved"


async def test_a_full_server_can_forget(own: WorkingStore, own_valkey: Valkey) -> None:
    session = name()
    await own.write([draft(session=session) for _ in range(5)], EVERYONE)
    async with Redis.from_url(own_valkey.url) as client:
        await client.config_set("maxmemory", "1mb")
        assert len((await own.forget(within(session))).ids) == 5
    assert (await own.timeline(Page(within(session)))).records == []


async def test_an_absent_server_is_an_error_that_names_it(tmp_path: object) -> None:
    store = WorkingStore(WorkingSettings(url=f"unix://{tmp_path}/none.sock"))
    with pytest.raises(A2MError) as absent:
        await store.open()
    assert absent.value.retryable
    assert "working" in absent.value.message


async def test_concurrent_appends_to_a_session_keep_their_order(store: WorkingStore) -> None:
    session = name()
    acknowledged: list[tuple[str, int]] = []

    async def append(writer: str) -> None:
        for n in range(25):
            await store.write([draft(f"{writer} {n}.{part}", session=session) for part in (0, 1)], EVERYONE)
            acknowledged.append((writer, n))

    await asyncio.gather(*(append(writer) for writer in "abcdefgh"))
    records = (await store.timeline(Page(within(session)))).records
    assert len({r.seq for r in records}) == len(records) == 8 * 25 * 2
    for writer in "abcdefgh":
        own = [r.content for r in records if r.content.startswith(writer)]
        assert own == [f"{writer} {n}.{part}" for n in range(25) for part in (0, 1)]
    position = {r.content: at for at, r in enumerate(records)}
    for n in range(25):
        for writer in "abcdefgh":
            # A batch is not torn apart by another.
            assert position[f"{writer} {n}.1"] == position[f"{writer} {n}.0"] + 1


async def test_one_id_written_by_many_at_once_is_created_once(store: WorkingStore) -> None:
    one = draft(session=name())
    written = await asyncio.gather(*(store.write([one], EVERYONE) for _ in range(20)))
    assert sorted(w.outcome for [w] in written) == ["created"] + ["existing"] * 19


async def test_one_id_written_to_many_sessions_at_once_is_created_once(store: WorkingStore) -> None:
    one, sessions = name("id"), [name() for _ in range(10)]
    written = await asyncio.gather(*(store.write([draft(id=one, session=s)], EVERYONE) for s in sessions))
    assert sorted(w.outcome for [w] in written) == ["created"] + ["existing"] * 9
    found = [r for s in sessions for r in (await store.timeline(Page(within(s)))).records]
    assert [r.id for r in found] == [one]


async def test_one_key_rewritten_from_many_sessions_at_once_stays_one(store: WorkingStore) -> None:
    key, owner, sessions = name("k"), name(), [name() for _ in range(6)]
    batches = [[draft(str(n), key=key, owner=owner, session=s)] for n, s in enumerate(sessions)]
    written = await asyncio.gather(*(store.write(batch, EVERYONE) for batch in batches))
    assert sorted(w.outcome for [w] in written) == ["created"] + ["replaced"] * 5
    [record] = (await store.timeline(Page(Filter(key_prefix=key)))).records
    assert record.revision == 5
    assert len(record.aliases) == 5
