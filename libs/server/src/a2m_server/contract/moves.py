"""Moving: transfers, conditional deletes, tombstones and marks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from a2m_protocol.clock import parse_ms, seq_of
from a2m_protocol.errors import A2MError, Code
from a2m_server.contract.samples import draft, moved, name, where, within
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, POOLED, Filter, Named, Page, Scope, Search, Tombstone


class MoveContract:
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
        assert (await store.fetch(str(one.key), EVERYONE, vectors=False)).record is None
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

    async def test_what_was_forgotten_is_listed_in_order_page_by_page(self, store: TierStore) -> None:
        drafts = [draft(owner=name("o"), session=name(), key=name("k")) for _ in range(7)]
        gone, again, left, undone = drafts[:4], drafts[4], drafts[5], drafts[6]
        written = {w.id: w for w in await store.write(drafts, EVERYONE)}
        start = (max(r.seq for r in await store.read([d.id for d in drafts])) - 1, "")
        await store.forget(Filter(ids=tuple(d.id for d in [*gone[:2], again])))
        await store.write([again], EVERYONE)
        await store.delete_if([Named(left.id, written[left.id].etag)], "moved", "t")
        await store.delete_if([Named(undone.id, written[undone.id].etag)], "undo", None)
        await store.delete_if([Named(gone[2].id, written[gone[2].id].etag)], "forgotten", None)
        first = await store.graves(2, start)
        last = first[-1]
        await store.forget(Filter(ids=(gone[3].id,)))
        elsewhere = Tombstone(name(), "forgotten", last.seq + 1, owner="ann")
        outdated = Tombstone(name(), "forgotten", seq_of(1))
        await store.bury([elsewhere, outdated, Tombstone(name(), "moved", last.seq + 2)])
        rest: list[Tombstone] = []
        while page := await store.graves(2, (last.seq, last.id)):
            assert len(page) <= 2
            rest += page
            last = page[-1]
        found = [*first, *rest]
        assert [(g.seq, g.id) for g in found] == sorted((g.seq, g.id) for g in found)
        assert {g.id for g in found} == {*(d.id for d in gone), elsewhere.id}
        assert len(found) == 5
        assert elsewhere in found
        assert [(g.owner, g.session, g.key) for g in found if g.id == gone[0].id] == [
            (gone[0].owner, gone[0].session, gone[0].key)
        ]
        assert {g.id: g for g in await store.tombstones([g.id for g in found])} == {g.id: g for g in found}
        await store.bury([replace(elsewhere, seq=elsewhere.seq + 1_000)])
        held = await store.graves(1_000, start)
        assert [g.seq for g in held if g.id == elsewhere.id] == [elsewhere.seq + 1_000]

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
