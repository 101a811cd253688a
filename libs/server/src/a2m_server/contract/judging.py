"""The status of records: what is active is found, what is not is kept and can be listed and judged."""

from __future__ import annotations

from a2m_protocol.types import STATUSES, Provenance, Status
from a2m_server.contract.samples import draft, name, where, within
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, Filter, Judged, Page, Scope, Search

CARD: dict[str, object] = {"metadata": {"n": 1.0, "big": 2**63, "name": "Zoë"}, "role": "user"}


class JudgingContract:
    """Of a fixture `store`."""

    async def test_what_is_not_active_is_neither_found_nor_fetched(self, store: TierStore) -> None:
        session, key = name(), name("k")
        pending = draft("the moon is cheese", session=session, key=key, status="pending")
        await store.write([pending], EVERYONE)
        for search in (
            Search(within(session), 5, text="moon cheese"),
            Search(within(session), 5),
        ):
            assert (await store.search(search)).records == []
        for scope in (EVERYONE, Scope.of(None)):
            assert (await store.fetch(key, scope, vectors=False)).record is None
        [kept] = (await store.timeline(Page(within(session)))).records
        assert (kept.id, kept.status) == (pending.id, "pending")

    async def test_a_fact_of_one_s_own_that_is_not_active_does_not_hide_a_pooled_one(
        self, store: TierStore
    ) -> None:
        owner, key = name("ann"), name("k")
        pooled, own = draft("pooled", key=key), draft("own", key=key, owner=owner, status="pending")
        await store.write([pooled, own], EVERYONE)
        found = (await store.fetch(key, Scope.of(owner), vectors=False)).record
        assert found is not None
        assert found.id == pooled.id

    async def test_records_are_listed_by_their_status(self, store: TierStore) -> None:
        session = name()
        drafts = [draft(status, session=session, status=status) for status in STATUSES]
        await store.write(drafts, EVERYONE)
        asked: list[tuple[Status, ...] | None] = [None, ("pending",), ("active", "superseded"), STATUSES]
        for statuses in asked:
            selected = Filter(where=where(session=session), statuses=statuses)
            expected = [d.id for d in drafts if statuses is None or d.status in statuses]
            assert [r.id for r in (await store.timeline(Page(selected))).records] == expected
            assert [r.id for r in (await store.timeline(Page(selected, 2))).records] == expected[-2:]
            assert [e.id for e in await store.entries(selected, 10, None)] == expected
        everybody = Filter(statuses=("archived",))
        listed = [e.id for e in await store.entries(everybody, 1_000, None)]
        assert drafts[3].id in listed
        assert not {d.id for d in drafts[:3]} & {*listed}
        gone = await store.forget(Filter(where=where(session=session), statuses=("pending",)))
        assert gone.ids == [drafts[1].id]

    async def test_what_is_judged_is_found_and_remembers_who_approved(self, store: TierStore) -> None:
        session, key = name(), name("k")
        origin = Provenance(source="web", principal="bot", derived_from=["a", "b"])
        one = draft("the sky is blue", session=session, key=key, status="pending", provenance=origin, **CARD)
        await store.write([one], EVERYONE)
        [before] = await store.read([one.id])
        assert await store.judge([Judged(one.id, before.etag, "active", "cleo")]) == {one.id: True}
        [after] = await store.read([one.id])
        assert after.etag != before.etag
        same = before.model_dump(exclude={"etag", "status", "provenance"})
        assert after.model_dump(exclude={"etag", "status", "provenance"}) == same
        assert repr(after.metadata) == repr(before.metadata)
        assert after.provenance == origin.model_copy(update={"approved": "cleo"})
        [found] = (await store.search(Search(within(session), 5, text="blue sky"))).records
        assert found.id == one.id
        fetched = (await store.fetch(key, EVERYONE, vectors=False)).record
        assert fetched is not None
        assert fetched.id == one.id
        approved = Filter(where=where(**{"provenance.approved": "cleo", "session": session}))
        assert [r.id for r in (await store.timeline(Page(approved))).records] == [one.id]

    async def test_a_record_without_a_provenance_gets_one_when_it_is_approved(self, store: TierStore) -> None:
        one = draft("bare", session=name(), status="pending")
        await store.write([one], EVERYONE)
        [before] = await store.read([one.id])
        await store.judge([Judged(one.id, before.etag, "active", "cleo")])
        [after] = await store.read([one.id])
        assert after.provenance == (before.provenance or Provenance()).model_copy(update={"approved": "cleo"})

    async def test_what_is_believed_no_longer_leaves_the_search(self, store: TierStore) -> None:
        session = name()
        one = draft("the earth is flat", session=session)
        await store.write([one], EVERYONE)
        statuses: tuple[Status, ...] = ("superseded", "archived", "pending")
        for status in statuses:
            [held] = await store.read([one.id])
            await store.judge([Judged(one.id, held.etag, status)])
            assert (await store.search(Search(within(session), 5, text="earth"))).records == []
            [kept] = await store.read([one.id])
            assert (kept.status, kept.provenance) == (status, held.provenance)

    async def test_only_what_still_has_its_etag_is_judged(self, store: TierStore) -> None:
        one, other = draft("a", session=name()), draft("b", session=name())
        await store.write([one, other], EVERYONE)
        held = {r.id: r for r in await store.read([one.id, other.id])}
        await store.touch([other.id], "2026-01-01T00:00:00.000Z")
        unknown = name("none")
        judged = [Judged(i, held[i].etag, "pending") for i in (one.id, other.id)]
        outcomes = await store.judge([*judged, Judged(unknown, "e", "pending")])
        assert outcomes == {one.id: True, other.id: False, unknown: False}
        statuses = {r.id: r.status for r in await store.read([one.id, other.id])}
        assert statuses == {one.id: "pending", other.id: "active"}
        assert await store.judge([]) == {}

    async def test_a_rewrite_has_the_status_of_what_was_written(self, store: TierStore) -> None:
        session, key = name(), name("k")
        await store.write([draft("first", session=session, key=key, status="pending")], EVERYONE)
        await store.write([draft("second", session=session, key=key)], EVERYONE)
        [found] = (await store.search(Search(within(session), 5, text="second"))).records
        assert (found.status, found.revision) == ("active", 1)
