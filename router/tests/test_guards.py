"""What a federation refuses or survives, beyond the ordinary course."""

from __future__ import annotations

import asyncio

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Capability, Record
from a2m_router.config import TierConfig
from a2m_router.federation import Federation
from a2m_router.moves import as_draft
from a2m_router.tiers import Member
from a2m_server.contract import draft, moved, name, where, within
from a2m_server.events import EventLog, Kind
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, POOLED, Deleted, Filter, Named, Page, Reason, Scope, Search, StoreInfo

URL = "http://127.0.0.1:1"
Stores = dict[str, MemoryTier]


class Foreign(MemoryTier):
    """A server that is not ours: it lacks our extensions and some capabilities."""

    lacks = frozenset({Capability.SCOPES, Capability.KEYS, Capability.SESSIONS, Capability.EMBEDDINGS})

    async def info(self) -> StoreInfo:
        info = await super().info()
        return StoreInfo(
            name=info.name, capabilities=info.capabilities - self.lacks, dimensions=7, extensions=frozenset()
        )


def config(tier: str, kind: str, **more: object) -> TierConfig:
    return TierConfig.model_validate({"name": tier, "kind": kind, "url": URL, **more})


async def opened(*members: Member) -> Federation:
    made = Federation("a2m", members, EventLog(), interval=3_600)
    await made.open()
    return made


async def test_a_foreign_tier_is_read_and_written_but_takes_no_part_in_moves() -> None:
    working, other = MemoryTier("working"), Foreign("other")
    made = await opened(
        Member(config("working", "working", capacity=2, per_session=True, spill_to="other"), working),
        Member(config("other", "semantic"), other),
    )
    session = name()
    await made.write([draft(f"note {n}", session=session) for n in range(5)], EVERYONE)
    await made.write([draft("a foreign note", tier="other")], EVERYONE)
    assert (await made.close_session(session, EVERYONE)).moved == {}
    assert (await made.consolidate()).moved == {}
    assert len((await working.timeline(Page(Filter()))).records) == 5
    found = (await made.search(Search(Filter(), 10, text="foreign"))).records
    assert [r.tier for r in found] == ["other"]
    assert len((await made.timeline(Page(within(session)))).records) == 5
    await made.write([draft(embedding=[1.0, 2.0], session=session)], EVERYONE)
    assert await made.promote([found[0].id], "working", 0.0, EVERYONE) == {}
    for wrong in (
        draft(tier="other", key="k"),
        draft(tier="other", owner="o"),
        draft(tier="other", session="s"),
    ):
        with pytest.raises(A2MError) as dropped:
            await made.write([wrong], EVERYONE)
        assert dropped.value.code == Code.INVALID_PARAMS
    await made.close()


async def test_a_read_only_tier_is_never_written() -> None:
    made = await opened(
        Member(config("working", "working"), MemoryTier("working")),
        Member(config("manuals", "semantic", read_only=True), MemoryTier("manuals")),
    )
    one = draft()
    await made.write([one], EVERYONE)
    with pytest.raises(A2MError) as written:
        await made.write([draft(tier="manuals")], EVERYONE)
    with pytest.raises(A2MError) as promoted:
        await made.promote([one.id], "manuals", 0.0, EVERYONE)
    assert written.value.code == promoted.value.code == Code.INVALID_PARAMS
    await made.close()


async def test_scopes_are_not_declared_over_tiers_that_ignore_the_owner() -> None:
    class Open(MemoryTier):
        async def info(self) -> StoreInfo:
            info = await super().info()
            return StoreInfo(
                name=info.name,
                capabilities=info.capabilities - {Capability.SCOPES},
                extensions=info.extensions,
            )

    made = await opened(Member(config("working", "working"), Open("working")))
    assert Capability.SCOPES not in (await made.info()).capabilities
    await made.close()


async def test_another_owner_s_moved_id_is_refused(federation: Federation, stores: Stores) -> None:
    one = draft("hers", owner="alice", session=name())
    await federation.write([one], Scope.of("alice"))
    await federation.close_session(str(one.session), EVERYONE)
    with pytest.raises(A2MError) as refused:
        await federation.write([draft("his", id=one.id, owner="bob")], Scope.of("bob"))
    assert refused.value.code == Code.SCOPE_DENIED
    assert "alice" not in refused.value.message
    assert "episodic" not in refused.value.message


async def test_a_group_of_more_than_a_call_takes_moves_whole(federation: Federation, stores: Stores) -> None:
    session, group = name(), name("g")
    drafts = [draft(str(n), session=session, group=group) for n in range(700)]
    for at in range(0, 700, 100):
        await federation.write(drafts[at : at + 100], EVERYONE)
    async with asyncio.timeout(60):
        while (await federation.counts(EVERYONE))["episodic"] != 700:  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0.01)
    assert (await federation.counts(EVERYONE))["working"] == 0


async def test_a_late_member_is_found_after_a_restart(stores: Stores) -> None:
    group = name("g")
    early, late = draft("call", group=group), draft("result", group=group)
    await stores["episodic"].write([early], EVERYONE)
    await stores["working"].write([late], EVERYONE)
    members = [
        Member(config(n, "working" if n == "working" else "episodic"), stores[n])
        for n in ("working", "episodic")
    ]
    made = await opened(*members)
    async with asyncio.timeout(5):
        while not await stores["episodic"].read([late.id]):  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0.001)
    assert await stores["working"].read([late.id]) == []
    await made.close()


async def test_a_fact_rewritten_while_it_is_forgotten_by_its_words_stays(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await federation.write([draft("draft", key="k")], EVERYONE)
    entries = stores["working"].entries
    rewritten = asyncio.Event()

    async def slow(*given: object) -> object:
        found = await entries(*given)  # pyright: ignore[reportArgumentType]
        if not rewritten.is_set():
            rewritten.set()
            await federation.write([draft("final", key="k")], EVERYONE)
        return found

    monkeypatch.setattr(stores["working"], "entries", slow)
    assert (await federation.forget(Filter(words=("draft",)))).ids == []
    held = (await federation.fetch("k", EVERYONE, vectors=False)).record
    assert held is not None
    assert held.content == "final"


async def test_a_second_import_finds_what_moved_twice(federation: Federation, stores: Stores) -> None:
    one = draft(session=name(), created_at="2024-01-01T00:00:00.000Z", moves=2)
    await federation.transfer([one])
    await federation.close_session(str(one.session), EVERYONE)
    await federation.promote([one.id], "semantic", 0.0, EVERYONE)
    [record] = await federation.read([one.id])
    again = one.model_copy(update={"moves": record.moves, "seq": record.seq})
    [written] = await federation.transfer([again])
    assert (written.outcome, written.tier) == ("refused", "semantic")
    assert {t: n for t, n in (await federation.counts(EVERYONE)).items() if n} == {"semantic": 1}


async def test_a_batch_does_not_split_a_key(federation: Federation, stores: Stores) -> None:
    there = draft("x", tier="episodic")
    await federation.write([there, draft("old", key="k")], EVERYONE)
    await federation.write([draft(id=there.id, key="k"), draft("new", key="k")], EVERYONE)
    held = (await federation.timeline(Page(Filter(where=where(key="k"))))).records
    assert [(r.content, r.revision) for r in held] == [("new", 1)]


async def test_a_batch_that_rewrites_a_key_twice_leaves_it_in_the_tier_named_last(
    federation: Federation, stores: Stores
) -> None:
    await federation.write([draft("old", key="k", tier="procedural")], EVERYONE)
    drafts = [draft("new", key="k", tier="semantic"), draft("newer", key="k", tier="procedural")]
    written = await federation.write(drafts, EVERYONE)
    assert [(w.outcome, w.tier) for w in written] == [("replaced", "procedural")] * 2
    [held] = (await federation.timeline(Page(Filter(where=where(key="k"))))).records
    assert (held.content, held.tier) == ("newer", "procedural")


async def test_a_write_that_working_did_not_answer_is_not_undone_over_a_retry(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, far = draft("x"), draft("y", tier="episodic")
    write = stores["working"].write

    async def lost(*given: object) -> object:
        await write(*given)  # pyright: ignore[reportArgumentType]
        monkeypatch.undo()
        await federation.write([plain], EVERYONE)
        raise A2MError(Code.INTERNAL, "lost", {"retryable": True})

    monkeypatch.setattr(stores["working"], "write", lost)
    with pytest.raises(A2MError, match="lost"):
        await federation.write([plain, far], EVERYONE)
    assert len(await federation.read([plain.id])) == 1
    assert await federation.read([far.id]) == []


async def test_what_one_tier_breaks_does_not_end_the_keeper(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(stores["episodic"], "transfer", broken)
    await federation.write([draft(session="s") for _ in range(9)], EVERYONE)
    async with asyncio.timeout(5):
        while federation._keeper._pauses == {}:  # noqa: ASYNC110 polls the keeper
            await asyncio.sleep(0.001)
    monkeypatch.undo()
    await federation.write([draft(session="t") for _ in range(9)], EVERYONE)
    async with asyncio.timeout(10):
        while (await federation.counts(EVERYONE))["working"] > 8:  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0.01)


async def test_what_is_dropped_is_dropped_in_whole_groups() -> None:
    working = MemoryTier("working")
    made = await opened(Member(config("working", "working", capacity=2), working))
    await made.write([draft(group="g") for _ in range(3)] + [draft("single")], EVERYONE)
    result = await made.consolidate()
    assert len(result.dropped) == 3
    assert [r.content for r in (await working.timeline(Page(Filter()))).records] == ["single"]
    await made.close()


async def test_an_owner_cannot_forbid_an_id_that_nobody_holds(federation: Federation) -> None:
    hers = draft(owner="alice", created_at="2024-01-01T00:00:00.000Z")
    await federation.forget(Filter(Scope.of("bob"), ids=(hers.id,)))
    [written] = await federation.transfer([hers])
    assert written.outcome == "created"
    coming = draft(created_at="2024-01-01T00:00:00.000Z")
    await federation.forget(Filter(POOLED, ids=(coming.id,)))
    [refused] = await federation.transfer([coming])
    assert refused.reason == "forgotten"


async def test_the_words_of_the_query_break_ties_between_tiers(federation: Federation) -> None:
    await federation.write([draft("a stained glass window")], EVERYONE)
    await federation.write([draft("Ada prefers window seats", tier="semantic")], EVERYONE)
    found = (await federation.search(Search(Filter(), 5, text="window seat"))).records
    assert [r.content for r in found] == ["Ada prefers window seats", "a stained glass window"]


async def test_a_batch_over_several_tiers_replays_in_its_order(federation: Federation) -> None:
    session = name()
    tiers = ["episodic", "working", "semantic", "working", "episodic", None, "procedural", None]
    drafts = [draft(str(at), session=session, tier=tier) for at, tier in enumerate(tiers)]
    await federation.write(drafts, EVERYONE)
    found = (await federation.timeline(Page(within(session)))).records
    assert [r.content for r in found] == [str(at) for at in range(len(tiers))]


async def test_a_copy_whose_original_went_elsewhere_is_taken_back(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = draft(session=name())
    await federation.write([one], EVERYONE)

    async def lost(*_: object) -> None:
        raise A2MError(Code.INTERNAL, "lost", {"retryable": True})

    monkeypatch.setattr(stores["working"], "delete_if", lost)
    with pytest.raises(A2MError, match="lost"):
        await federation.promote([one.id], "procedural", 0.0, EVERYONE)
    monkeypatch.undo()
    assert len(await stores["procedural"].read([one.id])) == 1
    [original] = await stores["working"].read([one.id])
    await stores["episodic"].transfer([moved(original)])
    await stores["working"].delete_if([Named(one.id, original.etag)], "moved", "episodic")
    await federation.consolidate()
    assert await stores["procedural"].read([one.id]) == []
    assert len(await stores["episodic"].read([one.id])) == 1


async def test_a_delete_of_which_nothing_was_heard_is_told_by_a_move_of_many(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = name()
    changed, lost, well = (draft(session=session) for _ in range(3))
    await federation.write([changed, lost, well], EVERYONE)
    delete_if, reading = stores["working"].delete_if, stores["working"].read

    async def read(ids: list[str]) -> list[Record]:
        records = await reading(ids)
        await stores["working"].reinforce([changed.id], 1.0, EVERYONE)
        return records

    async def cut(named: list[Named], reason: Reason, target: str | None) -> dict[str, Deleted]:
        if [one.id for one in named] == [lost.id]:
            raise A2MError(Code.INTERNAL, "lost", {"retryable": True})
        return await delete_if(named, reason, target)

    monkeypatch.setattr(stores["working"], "read", read)
    monkeypatch.setattr(stores["working"], "delete_if", cut)
    with pytest.raises(A2MError, match="lost"):
        await federation.close_session(session, EVERYONE)
    monkeypatch.undo()
    assert {*(await federation.close_session(session, EVERYONE)).moved} == {changed.id, lost.id}


async def test_what_was_moved_before_a_failure_is_told_to_those_who_poll(
    federation: Federation, stores: Stores, events: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = draft(session=name())
    await federation.write([one], EVERYONE)
    [record] = await stores["working"].read([one.id])
    await stores["episodic"].transfer([as_draft(record, "working", 0.0)])

    async def dead(*_: object) -> None:
        raise A2MError(Code.INTERNAL, "dead", {"retryable": True})

    monkeypatch.setattr(stores["working"], "entries", dead)
    with pytest.raises(A2MError, match="dead"):
        await federation.consolidate()
    [told] = (await events.poll("", None, frozenset({Kind.CONSOLIDATED}), EVERYONE)).events
    assert told["moved"] == 1


async def test_a_copy_from_a_tier_that_is_mounted_no_more_keeps_no_other_from_repair(
    federation: Federation, stores: Stores
) -> None:
    strange, one = draft(session=name()), draft(session=name())
    await federation.write([strange, one], EVERYONE)
    for wanted, source in ((strange, "gone"), (one, "working")):
        [record] = await stores["working"].read([wanted.id])
        await stores["episodic"].transfer([as_draft(record, source, 0.0)])
    await stores["working"].delete_if([Named(strange.id, "")], "undo", None)
    assert [*(await federation.consolidate()).moved] == [one.id]
    assert len(await stores["episodic"].read([strange.id])) == 1


async def test_a_dead_tier_is_not_asked_again_and_again_for_a_parted_group(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, asked = name(), 0
    await federation.write([draft("early", session=session)], EVERYONE)
    await federation.close_session(session, EVERYONE)

    async def dead(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise A2MError(Code.INTERNAL, "refused", {"retryable": True})

    monkeypatch.setattr(stores["semantic"], "entries", dead)
    await federation.write([draft("late", session=session, group=name("g"))], EVERYONE)
    for _ in range(2_000):
        await asyncio.sleep(0)
    assert 1 <= asked <= 4


async def test_a_late_member_of_a_closed_session_is_found_by_a_router_that_did_not_close_it(
    federation: Federation, stores: Stores
) -> None:
    session, group = name(), name("g")
    early, late = draft("call", session=session, group=group), draft("result", session=session, group=group)
    await federation.write([early], EVERYONE)
    await federation.close_session(session, EVERYONE)
    another = await opened(*(Member(config(n, n), stores[n]) for n in ("working", "episodic")))
    async with asyncio.timeout(5):
        while another._keeper._reunion._due:  # noqa: ASYNC110 the first sweep looks at every group
            await asyncio.sleep(0.001)
    await another.write([late], EVERYONE)
    async with asyncio.timeout(5):
        while not await stores["episodic"].read([late.id]):  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0.001)
    assert await stores["working"].read([late.id]) == []
    await another.close()
