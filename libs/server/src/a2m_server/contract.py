"""What every `TierStore` must do, as tests: a store's own tests subclass `TierContract`."""

from __future__ import annotations

import uuid

import pytest

from a2m_protocol.clock import created_at_of, parse_ms, seq_of
from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import FIELDS as CAPABILITY_FIELDS
from a2m_protocol.types import Draft, Record
from a2m_protocol.where import Where, parse_where
from a2m_server.store import (
    EVERYONE,
    POOLED,
    Filter,
    Named,
    Page,
    Scope,
    Search,
    TierStore,
    Tombstone,
)

FIELDS = frozenset(name for names in CAPABILITY_FIELDS.values() for name in names)
HOSTILE = [
    "../../etc",
    "a%20b",
    "a\nb",
    "*",
    "_%",
    "a'b\"c",
    "{x}",
    "-rf",
    "naïve",
    "猫",
    "a" * 512,
    "$(x)",
    " ",
]


def name(stem: str = "n") -> str:
    """A name that no other test uses."""
    return f"{stem}-{uuid.uuid4().hex[:12]}"


def draft(content: str = "hello", **fields: object) -> Draft:
    return Draft.model_validate({"id": name("id"), "content": content, **fields})


def where(**conditions: object) -> Where:
    return parse_where(conditions, FIELDS)


def within(session: str, scope: Scope = EVERYONE) -> Filter:
    return Filter(scope, where(session=session))


def moved(record: Record, moves: int | None = None) -> Draft:
    """The draft that transfers a record as it is."""
    fields = record.model_dump(exclude={"etag", "score", "tier"}, exclude_none=True)
    return Draft.model_validate({**fields, "moves": record.moves + 1 if moves is None else moves})


class TierContract:
    """Subclass it and give a fixture `store` that yields an open, possibly already used, `TierStore`."""

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
        kept = await store.fetch(one.key, Scope.of(one.owner), vectors=False)
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
        after = await store.fetch(key, Scope.of(owner), vectors=False)
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
        newest = await store.fetch(key, Scope.of(owner), vectors=False)
        assert newest is not None
        assert (newest.content, newest.revision) == ("newest", 2)

    async def test_keys_are_unique_per_owner_and_pooled_ones_are_a_fallback(self, store: TierStore) -> None:
        key, owner = name("k"), name()
        pooled, own = draft("pooled", key=key), draft("own", key=key, owner=owner)
        await store.write([pooled], EVERYONE)
        fallback = await store.fetch(key, Scope.of(owner), vectors=False)
        assert fallback is not None
        assert fallback.content == "pooled"
        await store.write([own], EVERYONE)
        mine = await store.fetch(key, Scope.of(owner), vectors=False)
        theirs = await store.fetch(key, POOLED, vectors=False)
        assert mine is not None
        assert theirs is not None
        assert (mine.content, theirs.content) == ("own", "pooled")
        assert await store.fetch(name("k"), EVERYONE, vectors=False) is None

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

    async def test_owners_do_not_see_each_other(self, store: TierStore) -> None:
        a, b, session = name("a"), name("b"), name()
        drafts = [draft("mine", owner=a, session=session), draft("theirs", owner=b, session=session)]
        await store.write([*drafts, draft("pooled", session=session)], EVERYONE)
        scope = Scope.of(a)
        found = await store.timeline(Page(within(session, scope)))
        assert [r.content for r in found.records] == ["mine", "pooled"]
        hits = await store.search(Search(within(session, scope), 10, text="mine theirs pooled"))
        assert {r.content for r in hits.records} == {"mine", "pooled"}
        assert (await store.forget(Filter(scope, ids=(drafts[1].id,)))).ids == []
        assert await store.reinforce([drafts[1].id], 1.0, scope) == 0
        listed = [s for s in await store.sessions(scope) if s.session == session]
        assert {s.owner: s.records for s in listed} == {a: 1, None: 1}
        fresh = name()
        with pytest.raises(A2MError) as denied:
            await store.write([draft(id=drafts[1].id, owner=a), draft(id=fresh)], scope)
        assert denied.value.code == Code.SCOPE_DENIED
        assert b not in denied.value.message
        assert await store.read([fresh]) == []

    async def test_where_is_honoured_exactly(self, store: TierStore) -> None:
        session = name()
        held: list[dict[str, object]] = [
            {"n": 1, "s": "x"},
            {"n": True, "s": "y"},
            {"n": 1.0, "s": None},
            {"n": "1"},
            {"n": 2**70, "s": ["x"]},
            {"n": {"n": 1}},
        ]
        await store.write([draft(str(i), session=session, metadata=m) for i, m in enumerate(held)], EVERYONE)
        cases: list[tuple[dict[str, object], str]] = [
            ({"n": 1}, "02"),
            ({"n": True}, "1"),
            ({"n": "1"}, "3"),
            ({"n": 2**70}, "4"),
            ({"n": [True, "1"]}, "13"),
            ({"s": None}, "235"),
            ({"s": ["x", None]}, "0235"),
            ({"n": []}, ""),
            ({"n": {"gte": 1}}, "024"),
            ({"n": {"ne": 1}}, "1345"),
            ({"s": {"exists": True}}, "014"),
            ({"s": {"in": ["x", "y"]}, "n": True}, "1"),
        ]
        for conditions, expected in cases:
            found = await store.timeline(Page(Filter(where=where(session=session, **conditions))))
            assert "".join(r.content for r in found.records) == expected, conditions

    async def test_where_reaches_the_record_s_own_fields(self, store: TierStore) -> None:
        session, group = name(), name("g")
        drafts = [
            draft("0", session=session, role="user", group=group),
            draft("1", session=session, role="tool", group=group, uri="u:1", media_type="a/b"),
            draft("2", session=session, salience=5.0, metadata={"role": "user"}),
        ]
        await store.write(drafts, EVERYONE)
        at = (await store.read([drafts[0].id]))[0].created_at
        cases: list[tuple[dict[str, object], str]] = [
            ({"role": "user"}, "0"),
            ({"role": None}, "2"),
            ({"group": group}, "01"),
            ({"id": drafts[1].id}, "1"),
            ({"uri": "u:1", "media_type": "a/b"}, "1"),
            ({"salience": {"gt": 1}}, "2"),
            ({"created_at": {"gte": at}}, "012"),
            ({"created_at": {"lt": at}}, ""),
            ({"content": "1"}, "1"),
            ({"accessed_at": None}, "012"),
            ({"access_count": 0}, "012"),
        ]
        for conditions, expected in cases:
            found = await store.timeline(Page(Filter(where=where(session=session, **conditions))))
            assert "".join(r.content for r in found.records) == expected, conditions

    async def test_words_select_what_holds_all_of_them(self, store: TierStore) -> None:
        session = name()
        texts = ["the blue whale sings", "blue WHALES sing", "whale", "東京タワーへ行く"]
        await store.write([draft(t, session=session) for t in texts], EVERYONE)
        cases: list[tuple[tuple[str, ...], list[int]]] = [
            (("blue", "whale"), [0]),
            (("whale",), [0, 2]),
            ((), []),
            (("東京", "京タ"), [3]),
        ]
        for words, expected in cases:
            found = await store.timeline(Page(Filter(where=where(session=session), words=words)))
            assert [r.content for r in found.records] == [texts[i] for i in expected]

    async def test_search_ranks_by_words_and_leaves_out_what_holds_none(self, store: TierStore) -> None:
        session = name()
        texts = ["a cat sat", "the cat and the cat", "a dog", "dogs and cats and birds and more of it all"]
        await store.write([draft(t, session=session) for t in texts], EVERYONE)
        found = (await store.search(Search(within(session), 10, text="cat"))).records
        assert {r.content for r in found} == {texts[0], texts[1], texts[3]}
        scores = [r.score for r in found if r.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert len(scores) == len(found)
        assert (await store.search(Search(within(session), 10, text="zebra"))).records == []
        assert (await store.search(Search(within(session), 10, text="?!"))).records == []
        assert len((await store.search(Search(within(session), 2, text="cat"))).records) == 2

    async def test_search_without_a_query_is_newest_first(self, store: TierStore) -> None:
        session = name()
        await store.write([draft(str(n), session=session) for n in range(5)], EVERYONE)
        found = (await store.search(Search(within(session), 3))).records
        assert [r.content for r in found] == ["4", "3", "2"]

    async def test_search_by_vector_compares_with_vectors_of_the_same_origin(self, store: TierStore) -> None:
        session = name()
        by_caller = draft("caller", session=session, embedding=[1.0, 0.0, 0.0, 0.0])
        far = draft("far", session=session, embedding=[-1.0, 0.1, 0.0, 0.0])
        by_model = draft("model", session=session, embedding=[1.0, 0.0, 0.0, 0.0], embedding_model="m")
        await store.write([by_caller, far, by_model, draft("none", session=session)], EVERYONE)
        query = [1.0, 0.1, 0.0, 0.0]
        found = (await store.search(Search(within(session), 10, embedding=query))).records
        assert [r.content for r in found] == ["caller", "far"]
        search = Search(within(session), 10, embedding=query, embedding_model="m")
        assert [r.content for r in (await store.search(search)).records] == ["model"]
        both = (await store.search(Search(within(session), 10, text="none", embedding=query))).records
        assert {r.content for r in both} == {"caller", "far", "none"}

    async def test_a_vector_of_another_width_is_refused_whole(self, store: TierStore) -> None:
        await store.write([draft(embedding=[1.0, 2.0, 3.0, 4.0])], EVERYONE)
        fresh = draft()
        with pytest.raises(A2MError) as refused:
            await store.write([fresh, draft(embedding=[1.0, 2.0])], EVERYONE)
        assert refused.value.code == Code.EMBEDDING_MISMATCH
        assert await store.read([fresh.id]) == []
        with pytest.raises(A2MError) as unlike:
            await store.search(Search(Filter(), 5, embedding=[1.0]))
        assert unlike.value.code == Code.EMBEDDING_MISMATCH

    async def test_counts_sessions_and_reinforcement_follow_the_records(self, store: TierStore) -> None:
        owner, session = name(), name()
        scope = Scope.of(owner)
        before = sum((await store.counts(scope)).values())
        drafts = [draft(str(n), owner=owner, session=session) for n in range(3)]
        await store.write([*drafts, draft(owner=owner)], EVERYONE)
        assert sum((await store.counts(scope)).values()) == before + 4
        [listed] = [s for s in await store.sessions(scope) if s.session == session]
        records = (await store.timeline(Page(within(session)))).records
        assert (listed.records, listed.owner) == (3, owner)
        assert (listed.opened_at, listed.touched_at) == (records[0].created_at, records[-1].created_at)
        assert await store.reinforce([drafts[0].id, name(), drafts[1].id], 1.5, scope) == 2
        await store.touch([drafts[0].id, drafts[0].id, name()], "2026-01-01T00:00:00.000Z")
        [record] = await store.read([drafts[0].id])
        assert (record.salience, record.access_count) == (2.5, 2)
        assert record.accessed_at == "2026-01-01T00:00:00.000Z"
        assert record.etag != records[0].etag
        await store.forget(within(session))
        assert sum((await store.counts(scope)).values()) == before + 1
        assert not [s for s in await store.sessions(scope) if s.session == session]

    async def test_entries_page_through_what_matches_oldest_first(self, store: TierStore) -> None:
        session, group = name(), name("g")
        drafts = [draft(str(n), session=session, group=group) for n in range(7)]
        await store.write(drafts, EVERYONE)
        seen: list[str] = []
        after = None
        while page := await store.entries(within(session), 3, after):
            seen += [entry.id for entry in page]
            after = (page[-1].seq, page[-1].id)
        assert seen == [d.id for d in drafts]
        [entry] = await store.entries(Filter(ids=(drafts[0].id,)), 10, None)
        [record] = await store.read([drafts[0].id])
        assert (entry.etag, entry.group, entry.session) == (record.etag, group, session)

    async def test_a_transfer_keeps_a_record_what_it_was(self, store: TierStore) -> None:
        seq = seq_of(parse_ms("2024-02-29T12:00:00.123Z"), 7)
        given = draft(
            "moved here",
            session=name(),
            key=name("k"),
            created_at="2024-02-29T12:00:00.123Z",
            seq=seq,
            revision=4,
            moves=2,
            salience=9.5,
            access_count=3,
            accessed_at="2024-03-01T00:00:00.000Z",
            embedding=[1.0, 0.5, 0.25, 0.0],
            embedding_model="m",
            features="AAECAw==",
            provenance={"source": "s", "method": "spill"},
            aliases=[name("alias")],
        )
        [written] = await store.transfer([given])
        assert written.outcome == "created"
        [record] = await store.read([given.id])
        kept = record.model_dump(exclude={"etag", "score", "tier"})
        assert kept == given.model_dump(exclude={"chosen", "tier"})
        [late] = await store.write([draft(id=given.aliases[0])], EVERYONE)
        assert (late.id, late.outcome) == (given.id, "existing")

    async def test_an_old_record_takes_its_place_in_the_order(self, store: TierStore) -> None:
        session = name()
        await store.write([draft("now", session=session)], EVERYONE)
        stamps = {
            "a": "2020-01-01T00:00:00.000Z",
            "x": "2019-12-31T23:59:59.999Z",
            "b": "2020-01-01T00:00:00.000Z",
        }
        await store.transfer([draft(c, session=session, created_at=stamp) for c, stamp in stamps.items()])
        await store.write([draft("later", session=session)], EVERYONE)
        found = (await store.timeline(Page(within(session)))).records
        assert [r.content for r in found] == ["x", "a", "b", "now", "later"]
        assert [r.created_at for r in found[:3]] == [stamps[c] for c in "xab"]

    async def test_a_transfer_gives_way_to_what_is_not_older(self, store: TierStore) -> None:
        one = draft("v0")
        await store.write([one], EVERYONE)
        [record] = await store.read([one.id])
        [same] = await store.transfer([moved(record, 0)])
        assert (same.outcome, same.reason) == ("refused", "exists")
        [newer] = await store.transfer([moved(record).model_copy(update={"content": "v1"})])
        assert newer.outcome == "created"
        assert [r.content for r in await store.read([one.id])] == ["v1"]

    async def test_a_conditional_delete_takes_all_or_nothing(self, store: TierStore) -> None:
        session = name()
        drafts = [draft(str(n), session=session) for n in range(3)]
        written = await store.write(drafts, EVERYONE)
        named = [Named(w.id, w.etag) for w in written]
        await store.touch([drafts[1].id], "2026-01-01T00:00:00.000Z")
        outcomes = await store.delete_if(named, "moved", "episodic")
        assert [outcomes[d.id] for d in drafts] == ["deleted", "changed", "deleted"]
        assert len(await store.read([d.id for d in drafts])) == 3
        assert await store.tombstones([d.id for d in drafts]) == []
        assert not (await store.timeline(Page(within(session)))).elsewhere
        named = [Named(r.id, r.etag) for r in await store.read([d.id for d in drafts])]
        outcomes = await store.delete_if(named, "moved", "episodic")
        assert set(outcomes.values()) == {"deleted"}
        assert await store.read([d.id for d in drafts]) == []
        graves = {g.id: g for g in await store.tombstones([d.id for d in drafts])}
        assert {(g.reason, g.target, g.moves, g.session) for g in graves.values()} == {
            ("moved", "episodic", 1, session)
        }
        again = await store.delete_if(named, "moved", "episodic")
        assert set(again.values()) == {"moved"}
        assert await store.delete_if([Named(unknown := name(), "x")], "moved", "t") == {unknown: "absent"}

    async def test_a_moved_id_is_answered_by_its_tombstone(self, store: TierStore) -> None:
        one = draft(session=name())
        [written] = await store.write([one], EVERYONE)
        await store.delete_if([Named(one.id, written.etag)], "moved", "episodic")
        [retry] = await store.write([one], EVERYONE)
        assert (retry.id, retry.outcome, retry.tier) == (one.id, "moved", "episodic")
        assert await store.read([one.id]) == []
        seq = seq_of(parse_ms("2026-01-01T00:00:00.000Z"))
        back = one.model_copy(update={"seq": seq, "moves": 1})
        [refused] = await store.transfer([back])
        assert (refused.outcome, refused.reason) == ("refused", "moved")
        [returned] = await store.transfer([back.model_copy(update={"moves": 2})])
        assert returned.outcome == "created"
        assert await store.tombstones([one.id]) == []

    async def test_a_moved_id_of_another_owner_is_refused_like_a_live_one(self, store: TierStore) -> None:
        alice, bob = name("alice"), name("bob")
        one = draft(session=name(), owner=alice)
        [written] = await store.write([one], EVERYONE)
        target = name("target")
        await store.delete_if([Named(one.id, written.etag)], "moved", target)
        claimed = draft(session=name(), owner=alice)
        await store.bury(
            [Tombstone(claimed.id, "moved", 1, owner=alice, session=claimed.session, target=target)]
        )
        fresh = draft(owner=bob, session=name())
        for taken in (one, claimed):
            for session in (None, taken.session):
                theirs = draft(id=taken.id, owner=bob, session=session)
                with pytest.raises(A2MError) as denied:
                    await store.write([fresh, theirs], Scope.of(bob))
                assert denied.value.code == Code.SCOPE_DENIED
                assert alice not in str(denied.value.wire())
                assert target not in str(denied.value.wire())
            with pytest.raises(A2MError) as pooled:
                await store.write([fresh, draft(id=taken.id)], POOLED)
            assert pooled.value.code == Code.SCOPE_DENIED
            for scope in (Scope.of(alice), EVERYONE):
                [retry] = await store.write([taken], scope)
                assert (retry.id, retry.outcome, retry.tier) == (taken.id, "moved", target)
        assert await store.read([fresh.id, one.id, claimed.id]) == []
        assert len(await store.tombstones([one.id, claimed.id])) == 2
        await store.bury([Tombstone(one.id, "forgotten", 2**50, owner=alice)])
        [renewed] = await store.write([draft(id=one.id, owner=bob)], Scope.of(bob))
        assert renewed.outcome == "created"

    async def test_an_undo_leaves_no_tombstone(self, store: TierStore) -> None:
        one = draft()
        [written] = await store.write([one], EVERYONE)
        assert await store.delete_if([Named(one.id, written.etag)], "undo", None) == {one.id: "deleted"}
        assert await store.tombstones([one.id]) == []

    async def test_forgotten_stays_forgotten_but_for_a_new_write(self, store: TierStore) -> None:
        one = draft("secret", session=name(), key=name("k"))
        await store.write([one], EVERYONE)
        [record] = await store.read([one.id])
        assert (await store.forget(Filter(ids=(one.id, one.id)))).ids == [one.id]
        [grave] = await store.tombstones([one.id])
        assert grave.reason == "forgotten"
        assert grave.seq >= record.seq
        [refused] = await store.transfer([moved(record)])
        assert (refused.outcome, refused.reason) == ("refused", "forgotten")
        assert (await store.search(Search(within(str(one.session)), 5, text="secret"))).records == []
        assert await store.fetch(str(one.key), EVERYONE, vectors=False) is None
        assert await store.delete_if([Named(one.id, record.etag)], "moved", "t") == {one.id: "forgotten"}
        [again] = await store.write([one], EVERYONE)
        assert again.outcome == "created"
        [renewed] = await store.read([one.id])
        assert renewed.seq > grave.seq

    async def test_a_late_transfer_does_not_undo_a_forget_and_a_new_write(self, store: TierStore) -> None:
        one = draft("old", session=name())
        await store.write([one], EVERYONE)
        [old] = await store.read([one.id])
        await store.forget(Filter(ids=(one.id,)))
        await store.write([one.model_copy(update={"content": "new"})], EVERYONE)
        [late] = await store.transfer([moved(old, 5)])
        assert late.outcome == "refused"
        assert [r.content for r in await store.read([one.id])] == ["new"]

    async def test_a_tombstone_can_be_put_where_nothing_is_held(self, store: TierStore) -> None:
        held, absent = draft(session=name()), name()
        await store.write([held], EVERYONE)
        [record] = await store.read([held.id])
        older = Tombstone(held.id, "forgotten", record.seq - 1)
        assert await store.bury([older]) == {held.id: "live"}
        graves = [Tombstone(held.id, "forgotten", record.seq), Tombstone(absent, "forgotten", record.seq)]
        assert await store.bury(graves) == {held.id: "forgotten", absent: "absent"}
        assert await store.read([held.id]) == []
        [refused] = await store.transfer([draft(id=absent, seq=record.seq, moves=5)])
        assert (refused.outcome, refused.reason) == ("refused", "forgotten")
        [newer] = await store.transfer([draft(id=absent, seq=record.seq + 1)])
        assert newer.outcome == "created"

    async def test_a_moved_tombstone_claims_an_id_and_marks_the_session(self, store: TierStore) -> None:
        session = name()
        held, claimed = draft(session=session), name()
        await store.write([held], EVERYONE)
        [record] = await store.read([held.id])
        claims = [
            Tombstone(held.id, "moved", record.seq, session=session, target="semantic"),
            Tombstone(claimed, "moved", record.seq, session=session, target="semantic"),
        ]
        assert await store.bury(claims) == {held.id: "live", claimed: "absent"}
        assert (await store.timeline(Page(within(session)))).elsewhere
        [written] = await store.write([draft(id=claimed, session=session)], EVERYONE)
        assert (written.outcome, written.tier) == ("moved", "semantic")
        await store.bury([Tombstone(claimed, "forgotten", record.seq + 1)])
        [fresh] = await store.write([draft(id=claimed, session=session)], EVERYONE)
        assert fresh.outcome == "created"

    async def test_forget_by_everything_at_once_takes_what_meets_all(self, store: TierStore) -> None:
        session, key = name(), name("k")
        drafts = [
            draft("red apple", session=session, key=key + "/1", metadata={"x": 1}),
            draft("red pear", session=session, key=key + "/2", metadata={"x": 1}),
            draft("red apple", session=session, key=key + "/3", metadata={"x": 2}),
            draft("red apple", session=session, metadata={"x": 1}),
        ]
        await store.write(drafts, EVERYONE)
        selected = Filter(where=where(session=session, x=1), key_prefix=key, words=("red", "apple"))
        assert (await store.forget(selected)).ids == [drafts[0].id]
        assert (await store.forget(Filter(ids=()))).ids == []

    async def test_what_a_move_brought_is_found_until_it_is_settled(self, store: TierStore) -> None:
        session = name()
        drafts = [draft(str(n), session=session, seq=10**15 + n, moves=1) for n in range(3)]
        arriving = [d.model_copy(update={"arrival": f"working {d.id}"}) for d in drafts[:2]]
        await store.transfer([*arriving, drafts[2]])
        selected = Filter(where=where(session=session), arrived=True)
        found = await store.entries(selected, 10, None)
        assert [(e.id, e.arrival) for e in found] == [(d.id, d.arrival) for d in arriving]
        assert [r.arrival for r in await store.read([d.id for d in drafts])] == [
            d.arrival for d in arriving
        ] + [None]
        assert len(await store.entries(within(session), 10, None)) == 3
        await store.settle(
            [Named(found[0].id, found[0].etag), Named(found[1].id, "stale"), Named(name(), "x")]
        )
        assert [e.id for e in await store.entries(selected, 10, None)] == [drafts[1].id]
        [settled] = await store.read([drafts[0].id])
        assert (settled.etag, settled.arrival) == (found[0].etag, None)
        await store.reinforce([drafts[1].id], 1.0, EVERYONE)
        assert [e.id for e in await store.entries(selected, 10, None)] == [drafts[1].id]
        await store.forget(within(session))
        assert await store.entries(selected, 10, None) == []
