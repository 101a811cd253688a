"""Writing: ids, keys, order, and what comes back."""

from __future__ import annotations

import pytest

from a2m_protocol.clock import created_at_of
from a2m_server.contract.samples import HOSTILE, draft, name, where, within
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, POOLED, Filter, Page, Scope


class WriteContract:
    async def test_a_record_comes_back_as_it_was_written(self, store: TierStore) -> None:
        metadata: dict[str, object] = {
            "a.b": [1, 2.5, None, {"deep": [True]}],
            'q"u': "x",
            "big": 2**70,
            "neg": -0.0,
            "": "",
            "e": {},
            "l": [],
        }
        one = draft(
            " two\r\nlines \u2028 ",
            role="user",
            metadata=metadata,
            group=name(),
            session=name(),
            owner=name(),
            key=name("k/a"),
            uri="https://example.org/a?b",
            media_type="text/plain",
            embedding=[0.1, -2.0, 0.0, 3.5],
            salience=2.5,
        )
        [written] = await store.write([one], EVERYONE)
        assert (written.id, written.outcome) == (one.id, "created")
        [record] = await store.read([one.id])
        for field in ("content", "role", "group", "session", "owner", "key", "uri", "media_type", "salience"):
            assert getattr(record, field) == getattr(one, field)
        assert repr(record.metadata) == repr(metadata)
        assert record.embedding == one.embedding
        assert record.created_at == created_at_of(record.seq)
        assert (record.revision, record.moves, record.access_count, record.etag) == (0, 0, 0, written.etag)

    @pytest.mark.parametrize("hostile", HOSTILE)
    async def test_hostile_names_are_only_names(self, store: TierStore, hostile: str) -> None:
        mark = name()
        one = draft(
            id=(hostile + mark)[-512:],
            session=(hostile + mark)[-512:],
            key=(hostile + mark)[-512:],
            owner=(hostile + mark)[-512:],
            role=hostile,
            metadata={hostile: hostile, "mark": mark},
        )
        await store.write([one], EVERYONE)
        assert one.session
        assert one.key
        found = await store.timeline(
            Page(Filter(Scope.of(one.owner), where(session=one.session, role=hostile, **{hostile: hostile})))
        )
        assert [r.id for r in found.records] == [one.id]
        kept = (await store.fetch(one.key, Scope.of(one.owner), vectors=False)).record
        assert kept is not None
        assert kept.id == one.id
        assert (await store.forget(Filter(ids=(one.id,)))).ids == [one.id]

    async def test_an_id_written_again_changes_nothing(self, store: TierStore) -> None:
        one = draft("first")
        await store.write([one], EVERYONE)
        [again] = await store.write([one.model_copy(update={"content": "second"})], EVERYONE)
        assert (again.id, again.outcome) == (one.id, "existing")
        [record] = await store.read([one.id])
        assert record.content == "first"
        assert record.etag == again.etag

    async def test_an_id_twice_in_one_batch_is_written_once(self, store: TierStore) -> None:
        one = draft("first")
        written = await store.write([one, one.model_copy(update={"content": "second"})], EVERYONE)
        assert [w.outcome for w in written] == ["created", "existing"]
        assert [r.content for r in await store.read([one.id])] == ["first"]

    async def test_the_order_of_writing_is_kept_within_a_millisecond(self, store: TierStore) -> None:
        session = name()
        drafts = [draft(str(n), session=session) for n in range(40)]
        for start in range(0, 40, 20):
            await store.write(drafts[start : start + 20], EVERYONE)
        found = (await store.timeline(Page(within(session)))).records
        assert [r.content for r in found] == [str(n) for n in range(40)]
        assert [r.created_at for r in found] == sorted(r.created_at for r in found)
        newest = (await store.timeline(Page(within(session), limit=3))).records
        assert [r.content for r in newest] == ["37", "38", "39"]

    async def test_the_order_of_writing_is_kept_over_sessions_and_owners(self, store: TierStore) -> None:
        mark = name()
        drafts = [draft(str(n), session=name(), owner=name(), metadata={"mark": mark}) for n in range(20)]
        await store.write(drafts[:10], EVERYONE)
        for one in drafts[10:]:
            await store.write([one], EVERYONE)
        found = (await store.timeline(Page(Filter(where=where(mark=mark))))).records
        assert [r.content for r in found] == [str(n) for n in range(20)]

    async def test_a_key_written_again_replaces_in_place(self, store: TierStore) -> None:
        key, owner = name("k"), name()
        first = draft("old", key=key, owner=owner, metadata={"v": 1}, salience=3.0)
        second = draft("new", key=key, owner=owner, metadata={"v": 2}, session=name())
        await store.write([first], EVERYONE)
        [before] = await store.read([first.id])
        [written] = await store.write([second], EVERYONE)
        assert (written.id, written.outcome, written.revision) == (first.id, "replaced", 1)
        after = (await store.fetch(key, Scope.of(owner), vectors=False)).record
        assert after is not None
        assert (after.id, after.content, after.metadata, after.session) == (
            first.id,
            "new",
            {"v": 2},
            second.session,
        )
        assert (after.created_at, after.seq, after.salience) == (before.created_at, before.seq, 3.0)
        [retry] = await store.write([second], EVERYONE)
        assert (retry.id, retry.outcome) == (first.id, "existing")
        await store.write([draft("newest", key=key, owner=owner)], EVERYONE)
        [late] = await store.write([second], EVERYONE)
        assert late.outcome == "existing"
        newest = (await store.fetch(key, Scope.of(owner), vectors=False)).record
        assert newest is not None
        assert (newest.content, newest.revision) == ("newest", 2)

    async def test_keys_are_unique_per_owner_and_pooled_ones_are_a_fallback(self, store: TierStore) -> None:
        key, owner = name("k"), name()
        pooled, own = draft("pooled", key=key), draft("own", key=key, owner=owner)
        await store.write([pooled], EVERYONE)
        fallback = (await store.fetch(key, Scope.of(owner), vectors=False)).record
        assert fallback is not None
        assert fallback.content == "pooled"
        await store.write([own], EVERYONE)
        mine = (await store.fetch(key, Scope.of(owner), vectors=False)).record
        theirs = (await store.fetch(key, POOLED, vectors=False)).record
        assert mine is not None
        assert theirs is not None
        assert (mine.content, theirs.content) == ("own", "pooled")
        assert (await store.fetch(name("k"), EVERYONE, vectors=False)).record is None

    async def test_key_prefix_matches_what_is_at_or_beneath(self, store: TierStore) -> None:
        root = name("r%_*")
        keys = [root, root + "/b", root + "/b/c", root + "b", root.upper() + "/b"]
        drafts = [draft(key=key) for key in keys]
        await store.write(drafts, EVERYONE)
        found = await store.timeline(Page(Filter(key_prefix=root)))
        assert [r.key for r in found.records] == keys[:3]
        assert sorted((await store.forget(Filter(key_prefix=root + "/b"))).ids) == sorted(
            d.id for d in drafts[1:3]
        )
