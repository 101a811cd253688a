"""Concurrent writers."""

import asyncio
import random

import pytest

from a2m_episodic.store import EpisodicStore
from a2m_protocol.errors import A2MError, Code
from a2m_server.contract import draft, moved, name, within
from a2m_server.values import EVERYONE, Filter, Named, Page, Scope, Tombstone


async def test_concurrent_writers_of_one_id_write_it_once(store: EpisodicStore) -> None:
    one = draft(session=name())
    written = await asyncio.gather(
        *(store.write([one.model_copy(update={"content": str(n)})], EVERYONE) for n in range(12))
    )
    outcomes = [w.outcome for [w] in written]
    assert sorted(outcomes) == ["created", *["existing"] * 11]
    [record] = await store.read([one.id])
    assert record.content == str(outcomes.index("created"))
    assert sum(s.records for s in (await store.sessions(EVERYONE)).sessions if s.session == one.session) == 1


@pytest.mark.parametrize("owned", [True, False])
async def test_concurrent_writers_of_one_key_leave_one_record(store: EpisodicStore, owned: bool) -> None:
    key, owner = name("k"), name() if owned else None
    drafts = [draft(str(n), key=key, owner=owner, session=name()) for n in range(12)]
    written = await asyncio.gather(*(store.write([one], EVERYONE) for one in drafts))
    assert {w.id for [w] in written} == {w.id for [w] in written if w.outcome == "created"}
    assert sorted(w.revision for [w] in written) == list(range(12))
    last = max(range(12), key=lambda n: written[n][0].revision)
    record = (await store.fetch(key, Scope.of(owner), vectors=False)).record
    assert record is not None
    assert (record.content, record.revision, len(record.aliases)) == (str(last), 11, 11)
    sessions = {d.session for d in drafts}
    assert [s.session for s in (await store.sessions(EVERYONE)).sessions if s.session in sessions] == [
        record.session
    ]


async def test_batches_that_meet_in_opposite_orders_do_not_deadlock(store: EpisodicStore) -> None:
    drafts = [draft(key=name("k"), session=name()) for _ in range(30)]
    await store.write(drafts, EVERYONE)
    shuffled = [random.Random(seed).sample(drafts, 30) for seed in range(8)]
    rewrites = [[draft(key=d.key, session=d.session) for d in batch] for batch in shuffled]
    ids = [[d.id for d in batch] for batch in shuffled]
    await asyncio.wait_for(
        asyncio.gather(
            *(store.write(batch, EVERYONE) for batch in shuffled + rewrites),
            *(store.touch(batch, "2026-01-01T00:00:00.000Z") for batch in ids),
            *(store.reinforce(batch, 1.0, EVERYONE) for batch in ids),
        ),
        30,
    )
    records = await store.read(ids[0])
    assert {(r.revision, r.access_count, r.salience) for r in records} == {(8, 8, 9.0)}


async def test_large_batches_and_small_ones_exclude_each_other(store: EpisodicStore) -> None:
    session = name()
    drafts = [draft(str(n), session=session) for n in range(300)]
    results = await asyncio.gather(
        store.write(drafts, EVERYONE), store.write(drafts[::-1], EVERYONE), store.write(drafts[:5], EVERYONE)
    )
    created = [w.id for batch in results for w in batch if w.outcome == "created"]
    assert sorted(created) == sorted(d.id for d in drafts)
    [listed] = [s for s in (await store.sessions(EVERYONE)).sessions if s.session == session]
    assert listed.records == 300


async def test_concurrent_writers_of_one_session_keep_each_batch_together(store: EpisodicStore) -> None:
    session = name()
    batches = [[draft(f"{b}.{n}", session=session) for n in range(10)] for b in range(10)]
    await asyncio.gather(*(store.write(batch, EVERYONE) for batch in batches))
    found = (await store.timeline(Page(within(session)))).records
    assert len({r.seq for r in found}) == 100
    contents = [r.content for r in found]
    assert [contents[i : i + 10] for i in range(0, 100, 10)] == sorted(
        ([d.content for d in batch] for batch in batches), key=lambda batch: contents.index(batch[0])
    )


async def test_a_forget_and_a_transfer_of_one_id_agree_on_the_outcome(store: EpisodicStore) -> None:
    for _ in range(10):
        one = draft("secret", session=name())
        await store.write([one], EVERYONE)
        [record] = await store.read([one.id])
        grave = Tombstone(one.id, "forgotten", record.seq + 10_000_000)
        outcomes, [written] = await asyncio.gather(store.bury([grave]), store.transfer([moved(record)]))
        assert outcomes == {one.id: "forgotten"}
        assert written.outcome in ("created", "refused")
        assert await store.read([one.id]) == []


async def test_a_rewrite_and_a_conditional_delete_of_one_record_agree(store: EpisodicStore) -> None:
    for _ in range(10):
        key = name("k")
        first = draft("old", key=key)
        [written] = await store.write([first], EVERYONE)
        deleted, [rewritten] = await asyncio.gather(
            store.delete_if([Named(first.id, written.etag)], "moved", "semantic"),
            store.write([draft("new", key=key)], EVERYONE),
        )
        kept = (await store.fetch(key, EVERYONE, vectors=False)).record
        assert kept is not None
        assert kept.content == "new"
        expected = ("deleted", "created") if kept.id != first.id else ("changed", "replaced")
        assert (deleted[first.id], rewritten.outcome) == expected


async def test_a_first_vector_of_each_of_two_widths_fixes_one(fresh: EpisodicStore) -> None:
    results = await asyncio.gather(
        *(fresh.write([draft(embedding=[1.0] * width)], EVERYONE) for width in (3, 4, 3, 4, 5)),
        return_exceptions=True,
    )
    refused = [r for r in results if isinstance(r, A2MError)]
    assert {r.code for r in refused} == {Code.EMBEDDING_MISMATCH}
    width = (await fresh.info()).dimensions
    records = (await fresh.timeline(Page(Filter(), vectors=True))).records
    assert {len(r.embedding or []) for r in records} == {width}
    assert len(records) + len(refused) == 5


async def test_names_at_their_limits_are_held_and_found(store: EpisodicStore) -> None:
    def long() -> str:
        return "".join(random.choices("\U0001f600\U0001f4a9\U00020bb7\U0001d49c", k=512))

    one = draft(
        id=long(),
        session=long(),
        owner=long(),
        key=long(),
        group=long(),
        role=long(),
        media_type=long(),
        metadata={long(): long()},
        uri="u" * 8192,
    )
    await store.write([one], EVERYONE)
    await store.write([draft(id=long(), key=one.key, owner=one.owner, session=long())], EVERYONE)
    found = (await store.fetch(str(one.key), Scope.of(one.owner), vectors=False)).record
    assert found is not None
    assert (found.id, found.revision, len(found.aliases)) == (one.id, 1, 1)


async def test_a_long_text_of_many_words_is_found_by_any_of_them(store: EpisodicStore) -> None:
    session = name()
    content = " ".join(f"w{n}x" for n in range(30_000))
    await store.write([draft(content, session=session)], EVERYONE)
    found = (await store.timeline(Page(Filter(words=("w29999x",), where=within(session).where)))).records
    assert len(found) == 1
    assert found[0].content == content
