from __future__ import annotations

import asyncio
from typing import Any

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_router import moves
from a2m_router.federation import Federation
from a2m_server.contract import draft, moved, name, where, within
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, POOLED, Deleted, Filter, Forgotten, Page, Scope, Search

Stores = dict[str, MemoryTier]


async def settled(federation: Federation, **counts: int) -> None:
    """Wait until the tiers hold just so many records."""
    async with asyncio.timeout(5):
        while {t: n for t, n in (await federation.counts(EVERYONE)).items() if n} != counts:  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0.001)


async def contents(federation: Federation, session: str) -> list[str]:
    return [r.content for r in (await federation.timeline(Page(within(session)))).records]


async def test_a_session_over_capacity_spills_its_oldest(federation: Federation, stores: Stores) -> None:
    session = name()
    for n in range(10):
        await federation.write([draft(str(n), session=session)], EVERYONE)
    await settled(federation, working=4, episodic=6)
    assert await contents(federation, session) == [str(n) for n in range(10)]
    newest = (await federation.timeline(Page(within(session), limit=5))).records
    assert [(r.content, r.tier) for r in newest] == [
        ("5", "episodic"),
        *((str(n), "working") for n in range(6, 10)),
    ]


async def test_a_busy_session_never_evicts_a_quiet_one(federation: Federation, stores: Stores) -> None:
    quiet, busy = name(), name()
    await federation.write([draft("q", session=quiet) for _ in range(4)], EVERYONE)
    await federation.write([draft("b", session=busy) for _ in range(9)], EVERYONE)
    await settled(federation, working=8, episodic=5)
    assert len((await stores["working"].timeline(Page(within(quiet)))).records) == 4


async def test_a_group_spills_whole(federation: Federation, stores: Stores) -> None:
    session, group = name(), name("g")
    await federation.write([draft("call", session=session, group=group)], EVERYONE)
    await federation.write([draft(str(n), session=session) for n in range(3)], EVERYONE)
    await federation.write([draft("result", session=session, group=group)], EVERYONE)
    await settled(federation, working=3, episodic=2)
    spilled = (await stores["episodic"].timeline(Page(Filter()))).records
    assert [r.content for r in spilled] == ["call", "result"]


async def test_a_late_member_joins_its_group(federation: Federation, stores: Stores) -> None:
    session, group = name(), name("g")
    await federation.write([draft("call", session=session, group=group)], EVERYONE)
    await federation.close_session(session, EVERYONE)
    await settled(federation, episodic=1)
    await federation.write([draft("result", session=session, group=group)], EVERYONE)
    await settled(federation, episodic=2)


async def test_a_move_changes_the_tier_and_nothing_else(federation: Federation, stores: Stores) -> None:
    one = draft(
        session=name(),
        key=name("k"),
        metadata={"a": [1, {"b": None}]},
        embedding=[1.0, 2.0],
        salience=3.0,
        role="user",
    )
    await federation.write([one], EVERYONE)
    [before] = await stores["working"].read([one.id])
    await federation.close_session(str(one.session), EVERYONE)
    [after] = await stores["episodic"].read([one.id])
    changed = {"etag", "moves"}
    assert before.model_dump(exclude=changed) == after.model_dump(exclude=changed)
    assert after.moves == 1


async def test_a_retry_after_the_record_spilled_changes_nothing(
    federation: Federation, stores: Stores
) -> None:
    drafts = [draft(str(n), session=name()) for n in range(3)]
    await federation.write(drafts, EVERYONE)
    for one in drafts:
        await federation.close_session(str(one.session), EVERYONE)
    written = await federation.write(drafts, EVERYONE)
    assert [(w.id, w.outcome, w.tier) for w in written] == [(d.id, "existing", "episodic") for d in drafts]
    await settled(federation, episodic=3)
    assert [*await federation.promote([drafts[0].id], "semantic", 1.0, EVERYONE)] == [drafts[0].id]
    await federation.write(drafts, EVERYONE)
    await settled(federation, episodic=2, semantic=1)


async def test_what_was_embedded_or_counted_while_it_was_promoted_is_promoted_all_the_same(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "ATTEMPTS", 4)
    one = draft(tier="episodic")
    await federation.write([one], EVERYONE)
    tier, tries = stores["episodic"], list[int]()
    delete_if = tier.delete_if

    async def changed(*arguments: Any) -> dict[str, Deleted]:
        tries.append(1)
        if len(tries) < 3:
            await tier.touch([one.id], "2026-01-01T00:00:00.000Z")
        return await delete_if(*arguments)

    monkeypatch.setattr(tier, "delete_if", changed)
    assert [*await federation.promote([one.id], "semantic", 1.0, EVERYONE)] == [one.id]
    [held] = await stores["semantic"].read([one.id])
    assert (held.salience, held.access_count, held.moves) == (2.0, 2, 1)


async def test_a_key_rewritten_after_it_moved_is_rewritten_where_it_is(
    federation: Federation, stores: Stores
) -> None:
    key, owner = name("k"), name()
    first = draft("old", key=key, owner=owner)
    await federation.write([first], EVERYONE)
    assert [*await federation.promote([first.id], "semantic", 0.0, EVERYONE)] == [first.id]
    second = draft("new", key=key, owner=owner, session=name())
    [written] = await federation.write([second], EVERYONE)
    assert (written.id, written.outcome, written.tier) == (first.id, "replaced", "semantic")
    held = (await federation.fetch(key, Scope.of(owner), vectors=False)).record
    assert held is not None
    assert (held.content, held.revision, held.tier) == ("new", 1, "semantic")
    assert await contents(federation, str(second.session)) == ["new"]
    [retry] = await federation.write([second], EVERYONE)
    assert (retry.id, retry.outcome) == (first.id, "existing")
    [moved] = await federation.write([draft("newer", key=key, owner=owner, tier="procedural")], EVERYONE)
    assert (moved.id, moved.outcome, moved.tier) == (first.id, "replaced", "procedural")
    await settled(federation, procedural=1)


async def test_a_record_written_straight_to_a_tier_is_found_by_a_turn(
    federation: Federation, stores: Stores
) -> None:
    session = name()
    one = draft("fact", session=session, tier="semantic")
    [written] = await federation.write([one], EVERYONE)
    assert (written.outcome, written.tier) == ("created", "semantic")
    assert await contents(federation, session) == ["fact"]
    [retry] = await federation.write([draft(id=one.id, session=session)], EVERYONE)
    assert (retry.outcome, retry.tier) == ("existing", "semantic")
    [again] = await federation.write([one], EVERYONE)
    assert again.outcome == "existing"
    other = draft("turn", session=session)
    await federation.write([other], EVERYONE)
    [late] = await federation.write([draft(id=other.id, tier="semantic")], EVERYONE)
    assert (late.outcome, late.tier) == ("existing", "working")
    await settled(federation, semantic=1, working=1)


async def test_a_batch_over_several_tiers_is_undone_when_one_refuses(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise A2MError(Code.INTERNAL, "down", {"retryable": True})

    monkeypatch.setattr(stores["procedural"], "write", refuse)
    batch = [draft("a", tier="semantic"), draft("b", tier="procedural"), draft("c")]
    with pytest.raises(A2MError) as failed:
        await federation.write(batch, EVERYONE)
    assert failed.value.retryable
    await settled(federation)
    monkeypatch.undo()
    written = await federation.write(batch, EVERYONE)
    assert [(w.outcome, w.tier) for w in written] == [
        ("created", "semantic"),
        ("created", "procedural"),
        ("created", "working"),
    ]


async def test_a_forget_reaches_every_tier_and_stays(federation: Federation, stores: Stores) -> None:
    session = name()
    drafts = [draft(f"secret {n}", session=session) for n in range(7)]
    await federation.write(drafts, EVERYONE)
    await settled(federation, working=4, episodic=3)
    copy = (await stores["episodic"].read([drafts[0].id]))[0]
    receipt = await federation.forget(Filter(words=("secret",)))
    assert sorted(receipt.ids) == sorted(d.id for d in drafts)
    assert dict(receipt.tiers) == {"working": 4, "episodic": 3}
    await settled(federation)
    for store in stores.values():
        assert {g.reason for g in await store.tombstones([d.id for d in drafts])} == {"forgotten"}
    [refused] = await federation.transfer([moved(copy)])
    assert (refused.outcome, refused.reason) == ("refused", "forgotten")
    [fresh] = await federation.write([drafts[0]], EVERYONE)
    assert fresh.outcome == "created"
    assert await contents(federation, session) == ["secret 0"]


async def test_an_import_under_way_does_not_bring_back_what_was_forgotten_by_id(
    federation: Federation,
) -> None:
    coming = draft(created_at="2024-01-01T00:00:00.000Z")
    assert (await federation.forget(Filter(ids=(coming.id,)))).ids == []
    [refused] = await federation.transfer([coming])
    assert (refused.outcome, refused.reason) == ("refused", "forgotten")


async def test_recall_merges_ranks_of_all_tiers(federation: Federation, stores: Stores) -> None:
    mark = name()
    texts = {"working": "the red fox", "episodic": "a red hen", "semantic": "red", "procedural": "blue"}
    for tier, text in texts.items():
        await federation.write([draft(text, tier=tier, metadata={"mark": mark})], EVERYONE)
    found = (await federation.search(Search(Filter(where=where(mark=mark)), 10, text="red"))).records
    assert {(r.tier, r.content) for r in found} == {(t, x) for t, x in texts.items() if t != "procedural"}
    recent = (await federation.search(Search(Filter(where=where(mark=mark)), 2))).records
    assert [r.content for r in recent] == ["blue", "red"]
    only = (await federation.search(Search(Filter(where=where(mark=mark), tier="semantic"), 5))).records
    assert [r.tier for r in only] == ["semantic"]


async def test_what_is_recalled_often_is_promoted(federation: Federation, stores: Stores) -> None:
    one = draft("often", tier="episodic")
    await federation.write([one, draft("seldom", tier="episodic")], EVERYONE)
    for _ in range(3):
        await federation.touch([one.id], "2026-01-01T00:00:00.000Z")
    result = await federation.consolidate()
    assert (dict(result.promoted), dict(result.moved), dict(result.dropped)) == ({one.id: None}, {}, {})
    await settled(federation, episodic=1, semantic=1)
    [record] = await federation.read([one.id])
    assert (record.tier, record.access_count) == ("semantic", 3)


async def test_closing_a_session_empties_it_from_working(federation: Federation, stores: Stores) -> None:
    session = name()
    await federation.write([draft(str(n), session=session) for n in range(3)], EVERYONE)
    await federation.write([draft("other", session=name())], EVERYONE)
    result = await federation.close_session(session, EVERYONE)
    assert len(result.moved) == 3
    await settled(federation, working=1, episodic=3)
    [info] = [s for s in (await federation.sessions(EVERYONE)).sessions if s.session == session]
    assert (info.records, dict(info.tiers)) == (3, {"episodic": 3})
    assert (await federation.close_session(name(), EVERYONE)).moved == {}


async def test_promotion_moves_whole_groups_and_adds_salience(federation: Federation, stores: Stores) -> None:
    group = name("g")
    drafts = [draft(str(n), group=group) for n in range(2)]
    await federation.write(drafts, EVERYONE)
    assert [*await federation.promote([drafts[0].id, name()], "semantic", 2.0, EVERYONE)] == [drafts[0].id]
    assert [r.salience for r in await stores["semantic"].read([d.id for d in drafts])] == [3.0, 3.0]
    assert await federation.promote([drafts[0].id], "semantic", 2.0, EVERYONE) == {}
    with pytest.raises(A2MError) as unknown:
        await federation.promote([drafts[0].id], "nowhere", 0.0, EVERYONE)
    assert unknown.value.code == Code.UNKNOWN_TIER


async def test_a_record_changed_in_mid_move_stays_and_its_copy_goes(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = draft(session=name())
    await federation.write([one], EVERYONE)
    transfer = stores["episodic"].transfer

    async def interrupted(drafts: list[object]) -> object:
        written = await transfer(drafts)  # pyright: ignore[reportArgumentType]
        await stores["working"].reinforce([one.id], 1.0, EVERYONE)
        return written

    monkeypatch.setattr(stores["episodic"], "transfer", interrupted)
    assert (await federation.close_session(str(one.session), EVERYONE)).moved == {}
    await settled(federation, working=1)
    monkeypatch.undo()
    assert [*(await federation.close_session(str(one.session), EVERYONE)).moved] == [one.id]
    [record] = await federation.read([one.id])
    assert (record.salience, record.tier) == (2.0, "episodic")


async def test_closing_a_session_tries_again_where_a_recall_counted_an_access_in_mid_move(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "ATTEMPTS", 4)
    one = draft(session=name())
    await federation.write([one], EVERYONE)
    transfer = stores["episodic"].transfer

    async def interrupted(drafts: list[object]) -> object:
        monkeypatch.undo()
        written = await transfer(drafts)  # pyright: ignore[reportArgumentType]
        await stores["working"].touch([one.id], "2026-01-01T00:00:00.000Z")
        return written

    monkeypatch.setattr(stores["episodic"], "transfer", interrupted)
    closing = federation.close_session(str(one.session), EVERYONE)
    assert [*(await closing).moved] == [one.id]
    [record] = await federation.read([one.id])
    assert (record.access_count, record.tier) == (1, "episodic")


async def test_a_record_forgotten_in_mid_move_stays_forgotten(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = draft("x", session=name())
    await federation.write([one], EVERYONE)
    transfer = stores["episodic"].transfer
    forgetting: list[asyncio.Task[Forgotten]] = []

    async def interrupted(drafts: list[object]) -> object:
        written = await transfer(drafts)  # pyright: ignore[reportArgumentType]
        forgetting.append(asyncio.create_task(federation.forget(Filter(ids=(one.id,)))))
        return written

    monkeypatch.setattr(stores["episodic"], "transfer", interrupted)
    await federation.close_session(str(one.session), EVERYONE)
    assert (await forgetting[0]).ids == [one.id]
    await settled(federation)


async def test_a_move_cut_off_after_the_copy_is_settled_by_the_next(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = draft("x", session=name())
    await federation.write([one], EVERYONE)

    async def cut(*_: object) -> None:
        raise A2MError(Code.INTERNAL, "cut", {"retryable": True})

    monkeypatch.setattr(stores["working"], "delete_if", cut)
    with pytest.raises(A2MError, match="cut"):
        await federation.close_session(str(one.session), EVERYONE)
    await settled(federation, working=1, episodic=1)
    assert await contents(federation, str(one.session)) == ["x"]
    found = (await federation.search(Search(within(str(one.session)), 5, text="x"))).records
    assert len(found) == 1
    monkeypatch.undo()
    assert [*(await federation.close_session(str(one.session), EVERYONE)).moved] == [one.id]
    await settled(federation, episodic=1)


async def test_a_dead_tier_is_named_and_the_others_answer(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await federation.write([draft("red", tier="semantic"), draft("red")], EVERYONE)

    async def dead(*_: object) -> None:
        raise A2MError(Code.INTERNAL, "connection refused", {"retryable": True})

    monkeypatch.setattr(stores["semantic"], "search", dead)
    found = await federation.search(Search(Filter(), 5, text="red"))
    assert [r.tier for r in found.records] == ["working"]
    assert [(d.tier, d.reason) for d in found.degraded] == [("semantic", "connection refused")]


async def test_owners_stay_apart_over_all_tiers(federation: Federation, stores: Stores) -> None:
    a, b, session = name(), name(), name()
    for owner in (a, b, None):
        for tier in ("working", "episodic"):
            await federation.write(
                [draft(f"{owner} {tier}", owner=owner, session=session, tier=tier)], EVERYONE
            )
    seen = (await federation.timeline(Page(within(session, Scope.of(a))))).records
    assert {r.owner for r in seen} == {a, None}
    assert len(seen) == 4
    assert {r.owner for r in (await federation.timeline(Page(within(session, POOLED)))).records} == {None}
    await federation.forget(Filter(Scope.of(a), where(session=session)))
    assert len((await federation.timeline(Page(within(session)))).records) == 2
