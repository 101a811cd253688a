"""What was forgotten is known to a federation as a whole, and can be put again."""

from __future__ import annotations

import asyncio

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_router.federation import Federation
from a2m_server.contract import draft, moved, name, within
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Page, Tombstone

Stores = dict[str, MemoryTier]


async def listed(federation: Federation, size: int) -> list[Tombstone]:
    found: list[Tombstone] = []
    after: tuple[int, str] | None = None
    while page := await federation.graves(size, after):
        found += page
        after = (page[-1].seq, page[-1].id)
    return found


async def test_what_was_forgotten_is_listed_once_whichever_tiers_know_of_it(
    federation: Federation, stores: Stores
) -> None:
    drafts = [draft(str(n), session="s") for n in range(6)]
    await federation.write(drafts, EVERYONE)
    await federation.close_session("s", EVERYONE)
    for one in drafts[:4]:
        await federation.forget(Filter(ids=(one.id,)))
    await stores["semantic"].bury([Tombstone("elsewhere", "forgotten", 2**52)])
    found = await listed(federation, 2)
    assert [grave.id for grave in found] == [*(d.id for d in drafts[:4]), "elsewhere"]
    assert await federation.tombstones([d.id for d in drafts]) == [
        *found[:4],
        *(await stores["working"].tombstones([d.id for d in drafts[4:]])),
    ]


async def test_a_tombstone_put_over_the_federation_ends_what_is_older_wherever_it_is(
    federation: Federation, stores: Stores
) -> None:
    here, below, fresh = draft(session=name()), draft(session=name()), draft(session=name(), group="g")
    await federation.write([here, below], EVERYONE)
    await federation.close_session(str(below.session), EVERYONE)
    held = await federation.read([here.id, below.id])
    graves = [Tombstone(r.id, "forgotten", r.seq) for r in held]
    await federation.write([fresh], EVERYONE)
    [newer] = await federation.read([fresh.id])
    told = await federation.bury(
        [*graves, Tombstone(fresh.id, "forgotten", newer.seq - 1), Tombstone("none", "forgotten", 7)]
    )
    assert told == {here.id: "forgotten", below.id: "forgotten", fresh.id: "live", "none": "absent"}
    assert [r.id for r in (await federation.timeline(Page(Filter()))).records] == [fresh.id]
    for store in stores.values():
        assert {g.id for g in await store.tombstones([here.id, below.id, fresh.id, "none"])} == {
            here.id,
            below.id,
            "none",
        }
    refused = await federation.transfer([moved(record, 9) for record in held])
    assert {w.reason for w in refused} == {"forgotten"}


async def test_a_newer_record_keeps_what_the_tiers_know_of_its_moves(
    federation: Federation, stores: Stores
) -> None:
    one = draft(session=name())
    await federation.write([one], EVERYONE)
    await federation.forget(Filter(ids=(one.id,)))
    [old] = await federation.graves(10, None)
    await federation.write([one], EVERYONE)
    await federation.close_session(str(one.session), EVERYONE)
    assert await federation.bury([old]) == {one.id: "live"}
    [retry] = await federation.write([one], EVERYONE)
    assert retry.outcome == "existing"
    assert len((await federation.timeline(Page(within(str(one.session))))).records) == 1


async def test_a_move_that_is_under_way_does_not_save_what_is_buried(
    federation: Federation, stores: Stores
) -> None:
    drafts = [draft(str(n), session="s", group=f"g{n % 3}") for n in range(12)]
    await federation.write(drafts, EVERYONE)
    graves = [Tombstone(r.id, "forgotten", r.seq) for r in await federation.read([d.id for d in drafts[:6]])]
    await asyncio.gather(federation.close_session("s", EVERYONE), federation.bury(graves))
    await federation.consolidate()
    held = (await federation.timeline(Page(within("s")))).records
    assert [r.content for r in held] == [str(n) for n in range(6, 12)]


async def test_only_what_was_forgotten_can_be_put_and_every_tier_must_hear_of_it(
    federation: Federation, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(A2MError, match="forgotten") as refused:
        await federation.bury([Tombstone("a", "moved", 1, target="episodic")])
    assert refused.value.code == Code.INVALID_PARAMS

    async def silent(*_: object) -> None:
        raise A2MError(Code.INTERNAL, "down", {"retryable": True})

    monkeypatch.setattr(stores["semantic"], "graves", silent)
    with pytest.raises(A2MError, match="down") as down:
        await federation.graves(10, None)
    assert down.value.retryable


async def test_an_import_never_takes_the_place_of_a_record_that_is_there(
    federation: Federation, stores: Stores
) -> None:
    one = draft("v0", key="k")
    await federation.write([one], EVERYONE)
    [old] = await federation.read([one.id])
    await federation.write([draft("v1", key="k")], EVERYONE)
    [refused] = await federation.transfer([moved(old, 8).model_copy(update={"tier": "working"})])
    assert (refused.outcome, refused.reason) == ("refused", "exists")
    assert [r.content for r in await federation.read([one.id])] == ["v1"]
