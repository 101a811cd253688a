"""A tier is brought to another service: what comes along, what is refused, what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from settling import NEW, OLD, PAUSE, World, relocated, values
from widths import until

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_router import mirror, relocation
from a2m_router.config import ConfigError, FederationConfig
from a2m_router.federation import Federation
from a2m_router.places import Places
from a2m_router.remote import RemoteTier
from a2m_server.contract import draft, name, within
from a2m_server.dispatch import Dispatcher
from a2m_server.identity import Caller, Peer, Role
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Page, Search, StoreInfo, Tombstone, Written
from conftest import CHAIN


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(mirror, "BATCH", 7)
    made = World(tmp_path)
    for config in CHAIN:
        made.serve(OLD[config.name], config.kind)
    return made


@pytest.fixture
async def federation(world: World) -> AsyncIterator[Federation]:
    async with world.router() as made:
        yield made


async def test_everything_of_a_record_is_there_afterwards_and_the_router_asks_the_new_service(
    world: World, federation: Federation
) -> None:
    old, new = world.services[OLD["episodic"]], world.serve(NEW, "episodic")
    drafts = [
        draft(
            f"fact {n}",
            tier="episodic",
            owner=f"o{n % 3}",
            session=f"s{n % 4}",
            group=f"g{n // 2}",
            key=f"k/{n}",
            metadata={"n": n, "x": 1.0},
            embedding=[1.0, 0.25, float(n)],
            embedding_model="m",
        )
        for n in range(30)
    ]
    await federation.write(drafts, EVERYONE)
    again = draft("again", key="k/3", owner="o0", tier="episodic", session="s3")
    await federation.write([again], EVERYONE)
    await federation.touch([drafts[0].id], "2026-01-01T00:00:00.000Z")
    await federation.reinforce([drafts[1].id], 2.0, EVERYONE)
    await federation.forget(Filter(ids=(drafts[2].id, drafts[5].id)))
    before = await values(old)
    told = await relocated(federation, "episodic")
    assert (told.records, told.verified, told.strays) == (28, 28, 0)
    assert told.digest
    assert await values(new) == before
    assert [g.id for g in await new.graves(10, None)] == [g.id for g in await old.graves(10, None)]
    later = draft("later", tier="episodic")
    [written] = await federation.write([later], EVERYONE)
    assert written.tier == "episodic"
    assert [record.id for record in await new.read([later.id])] == [later.id]
    assert await old.read([later.id]) == []
    [retried] = await federation.write([again], EVERYONE)
    assert (retried.id, retried.outcome) == (drafts[3].id, "existing")


async def test_a_router_that_starts_again_asks_the_new_service(world: World) -> None:
    world.serve(NEW, "episodic")
    one = draft("here", tier="episodic")
    async with world.router() as first:
        await first.write([one], EVERYONE)
        await relocated(first, "episodic")
    await world.services[OLD["episodic"]].forget(Filter())
    async with world.router() as second:
        assert [r.content for r in await second.read([one.id])] == ["here"]
        assert (await relocated(second, "episodic")).state == "switched"


async def test_a_tier_goes_on_from_where_it_was_moved_to_and_home_again_once_that_is_empty(
    world: World, federation: Federation
) -> None:
    world.serve(NEW, "episodic")
    third = world.serve("http://third", "episodic")
    one = draft("here", tier="episodic")
    await federation.write([one], EVERYONE)
    await relocated(federation, "episodic")
    await relocated(federation, "episodic", "http://third")
    assert await third.read([one.id])
    for url in (OLD["episodic"], NEW):
        with pytest.raises(A2MError, match="not copied from here"):
            await relocated(federation, "episodic", url)
    world.services[OLD["episodic"]] = MemoryTier("episodic", "episodic")
    await relocated(federation, "episodic", OLD["episodic"])
    async with world.router() as again:
        assert (await again.read([one.id]))[0].content == "here"
    assert "episodic" not in (world.folder / "places.json").read_text()


async def test_working_takes_its_tombstones_and_the_marks_of_its_sessions_along(
    world: World, federation: Federation
) -> None:
    old, new = world.services[OLD["working"]], world.serve(NEW, "working")
    sessions = [name("s") for _ in range(4)]
    turns = {s: [draft(f"{s} {n}", session=s) for n in range(6)] for s in sessions}
    for session, drafts in turns.items():
        await federation.write(drafts, EVERYONE)
        await federation.close_session(session, EVERYONE)
    # The tombstones of a session that is long gone are too; its mark stays.
    for one in turns[sessions[0]]:
        old._ledger._fill(one.id)
    await federation.forget(Filter(ids=(turns[sessions[1]][0].id,)))
    told = await relocated(federation, "working")
    assert told.tombstones == 18
    for session, drafts in turns.items():
        assert (await new.timeline(Page(within(session)))).elsewhere
        if session != sessions[0]:
            [retried] = await federation.write([drafts[1]], EVERYONE)
            assert retried.outcome == "existing"
            assert not await new.read([drafts[1].id])
        found = (await federation.timeline(Page(within(session)))).records
        kept = drafts[1:] if session == sessions[1] else drafts
        assert [record.id for record in found] == [one.id for one in kept]
    assert [g.id for g in await new.graves(9, None)] == [turns[sessions[1]][0].id]


async def test_an_id_that_left_was_forgotten_and_is_written_anew_between_two_passes_is_copied(
    world: World, federation: Federation
) -> None:
    old, new = world.services[OLD["working"]], world.serve(NEW, "working")
    one = draft("new", session=name())
    await new.bury([Tombstone(relocation.MARK, "moved", 1, target="working")])
    await new.bury([Tombstone(one.id, "moved", 5, target="episodic", moves=3)])
    await old.write([one], EVERYONE)
    await relocated(federation, "working")
    assert await values(new) == await values(old)


async def test_keys_and_aliases_that_changed_hands_between_two_runs_are_copied(
    world: World, federation: Federation
) -> None:
    old, new = world.services[OLD["semantic"]], world.serve(NEW, "semantic")
    first, second = draft("a", key="one"), draft("b", key="two")
    await old.write([first, second], EVERYONE)
    await new.bury([Tombstone(relocation.MARK, "moved", 1, target="semantic")])
    swapped = [first.model_copy(update={"key": "two"}), second.model_copy(update={"key": "one"})]
    await new.transfer([one.model_copy(update={"seq": 9}) for one in swapped])
    await new.transfer([draft("left over", key="three", seq=10)])
    await relocated(federation, "semantic")
    assert await values(new) == await values(old)


async def test_writes_wait_while_the_tier_is_switched_and_reads_do_not(
    world: World, federation: Federation
) -> None:
    new = world.serve(NEW, "episodic")
    one, late = draft("one", tier="episodic"), draft("late", tier="episodic")
    await federation.write([one], EVERYONE)
    member = federation._tiers.get("episodic")
    store = member.store
    assert isinstance(store, RemoteTier)
    async with store.gate.held():
        writing = asyncio.create_task(federation.write([late], EVERYONE))
        assert (await federation.search(Search(Filter(), 5, text="one"))).records[0].id == one.id
        assert not writing.done()
        store.trade(world.mount("episodic", NEW))
    await writing
    assert [record.id for record in await new.read([late.id])] == [late.id]


async def test_a_write_that_is_under_way_is_waited_for(
    world: World, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = world.serve(NEW, "episodic")
    monkeypatch.setattr(relocation, "STEP", 0.05)
    late = draft("late", tier="episodic")
    answered = world.slow[OLD["episodic"], "memory/remember"] = asyncio.Event()
    writing = asyncio.create_task(federation.write([late], EVERYONE))
    store = federation._tiers.get("episodic").store
    assert isinstance(store, RemoteTier)
    await until(lambda: store.gate._under_way)
    for _ in range(3):
        assert (await federation.relocate("episodic", NEW, pause=PAUSE)).state == "copying"
    answered.set()
    await writing
    await relocated(federation, "episodic")
    assert [record.id for record in await new.read([late.id])] == [late.id]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_router_that_dies_in_the_moment_of_the_switch_leaves_one_of_both_whole(
    world: World, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    old, new = world.services[OLD["episodic"]], world.serve(NEW, "episodic")
    one, two = draft("one", tier="episodic"), draft("two", tier="episodic")
    real = Places.move

    def dies(self: Places, tier: str, url: str) -> None:
        if kept:
            real(self, tier, url)
        raise RuntimeError("the end")

    monkeypatch.setattr(Places, "move", dies)
    async with world.router() as first:
        await first.write([one], EVERYONE)
        with pytest.raises(RuntimeError, match="the end"):
            await relocated(first, "episodic")
    monkeypatch.setattr(Places, "move", real)
    async with world.router() as second:
        await second.write([two], EVERYONE)
        assert {*await values(new if kept else old)} == {one.id, two.id}
        assert (await relocated(second, "episodic")).state == "switched"
        assert {*await values(new)} == {one.id, two.id}
        assert [r.content for r in await second.read([one.id, two.id])] == ["one", "two"]


async def test_where_the_new_place_cannot_be_kept_the_tier_stays(
    world: World, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve(NEW, "episodic")

    def full(self: Places, tier: str, url: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Places, "move", full)
    with pytest.raises(A2MError, match=r"not switched: .*No space left"):
        await relocated(federation, "episodic")
    one = draft("one", tier="episodic")
    await federation.write([one], EVERYONE)
    assert {*await values(world.services[OLD["episodic"]])} == {one.id}


async def test_a_service_that_does_not_give_back_what_it_is_given_is_not_switched_to(
    world: World, federation: Federation
) -> None:
    new = world.serve(NEW, "episodic")
    real = new.transfer

    async def forgetful(drafts: Sequence[Draft]) -> list[Written]:
        return await real([one.model_copy(update={"metadata": None}) for one in drafts])

    new.transfer = forgetful  # type: ignore[method-assign]
    one, plain = draft("one", tier="episodic", metadata={"a": 1}), draft("plain", tier="episodic")
    await federation.write([one, plain], EVERYONE)
    with pytest.raises(A2MError, match=f"1 records, such as '{one.id}': it does not give it back"):
        await relocated(federation, "episodic")
    [kept] = await federation.read([one.id])
    assert kept.metadata == {"a": 1}
    new.transfer = real  # type: ignore[method-assign]
    assert (await relocated(federation, "episodic")).verified == 2


async def test_a_pause_that_does_not_suffice_is_given_up_and_the_tier_stays(
    world: World, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve(NEW, "episodic")
    await federation.write([draft(f"{n}", tier="episodic") for n in range(20)], EVERYONE)
    real = mirror.Mirror.once

    async def slow(self: mirror.Mirror) -> int:
        store = federation._tiers.get("episodic").store
        if not store.gate._open.is_set():  # type: ignore[attr-defined]
            await asyncio.Event().wait()
        return await real(self)

    monkeypatch.setattr(mirror.Mirror, "once", slow)
    with pytest.raises(A2MError, match=r"more than 0.05 s"):
        await federation.relocate("episodic", NEW, pause=0.05)
    one = draft("goes on", tier="episodic")
    await federation.write([one], EVERYONE)
    assert await world.services[OLD["episodic"]].read([one.id])
    monkeypatch.setattr(mirror.Mirror, "once", real)
    assert (await relocated(federation, "episodic")).verified == 21


async def test_what_cannot_be_moved_or_moved_to_is_refused_and_nothing_changes(
    world: World, federation: Federation
) -> None:
    strange = world.serve("http://strange", "episodic")
    await strange.write([draft("somebody's own")], EVERYONE)
    world.serve("http://other-kind", "semantic")
    world.serve(NEW, "episodic")
    await federation.write([draft("one", tier="episodic")], EVERYONE)
    for url, why in (
        ("http://strange", "not copied from here"),
        ("http://other-kind", "of kind semantic"),
        (OLD["semantic"], "is where tier semantic is"),
        ("ftp://x", "expected one such as"),
        ("http://[", "expected one such as"),
    ):
        for dry in (True, False):
            with pytest.raises(A2MError, match=why):
                await federation.relocate("episodic", url, pause=PAUSE, dry=dry)
    world.others = 2
    with pytest.raises(A2MError, match="3 routers"):
        await federation.relocate("episodic", NEW, pause=PAUSE)
    assert await values(world.services["http://strange"])
    assert (
        not (world.folder / "places.json").exists() or "to" not in (world.folder / "places.json").read_text()
    )


async def test_a_tier_with_a_history_is_left_to_those_who_can_copy_that(
    world: World, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve(NEW, "procedural")
    real = MemoryTier.info

    async def keeps(self: MemoryTier) -> StoreInfo:
        info = await real(self)
        return replace(info, extensions=info.extensions | {"erase"})

    monkeypatch.setattr(MemoryTier, "info", keeps)
    with pytest.raises(A2MError, match="copy its whole folder"):
        await relocated(federation, "procedural")


async def test_a_service_by_another_name_is_known_for_what_it_is(
    world: World, federation: Federation
) -> None:
    world.services[NEW] = world.services[OLD["episodic"]]
    with pytest.raises(A2MError, match="already"):
        await relocated(federation, "episodic")


async def test_it_is_for_operators_and_takes_no_pause_without_end(
    world: World, federation: Federation
) -> None:
    world.serve(NEW, "episodic")
    dispatcher = Dispatcher(federation)

    async def code(caller: Caller, **params: object) -> object:
        asked = {"tier": "episodic", "url": NEW, "dry": True, **params}
        message = {"jsonrpc": "2.0", "id": 1, "method": "memory/relocate", "params": asked}
        answered = await dispatcher.handle(message, Peer(caller))
        assert answered is not None
        error = answered.get("error")
        return error["code"] if isinstance(error, dict) else answered["result"]["state"]  # type: ignore[index,call-overload]

    for role in set(Role) - {Role.OPERATOR}:
        assert await code(Caller(role is Role.ROUTER, frozenset({role}), "somebody")) == -32005
    operator = Caller(False, frozenset({Role.OPERATOR}), "somebody", readable=None)
    assert await code(operator) == "ready"
    for pause in (0, -1, 301, "long"):
        assert await code(operator, pause=pause) == -32602
    assert await code(operator, tier="nowhere") == -32002
    assert await code(operator, url=None) == -32602


async def test_a_dry_run_says_how_much_there_is_and_changes_nothing(
    world: World, federation: Federation
) -> None:
    new = world.serve(NEW, "episodic")
    await federation.write([draft(f"{n}", tier="episodic") for n in range(5)], EVERYONE)
    told = await federation.relocate("episodic", NEW, pause=PAUSE, dry=True)
    assert (told.state, told.records, told.source, told.target) == ("ready", 5, OLD["episodic"], NEW)
    assert await values(new) == {}
    assert await new.tombstones([relocation.MARK]) == []


async def test_who_writes_to_the_old_service_afterwards_is_noticed(
    world: World, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve(NEW, "episodic")
    old = world.services[OLD["episodic"]]
    await federation.write([draft("one", tier="episodic")], EVERYONE)
    real = Places.move

    def moved(self: Places, tier: str, url: str) -> None:
        real(self, tier, url)
        old._write(draft("behind its back"))

    monkeypatch.setattr(Places, "move", moved)
    assert (await relocated(federation, "episodic")).strays == 1


async def test_the_work_ends_when_nobody_asks_for_it_any_more(
    world: World, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve(NEW, "episodic")
    await federation.write([draft(f"{n}", tier="episodic") for n in range(50)], EVERYONE)
    monkeypatch.setattr(relocation, "STEP", 0.0)
    monkeypatch.setattr(relocation, "ABANDONED", -1.0)
    assert (await federation.relocate("episodic", NEW, pause=PAUSE)).state == "copying"
    work = federation._relocator and federation._relocator._work
    assert work
    assert work.task
    await asyncio.wait([work.task])
    with pytest.raises(A2MError, match="nobody asked"):
        await federation.relocate("episodic", NEW, pause=PAUSE)
    monkeypatch.setattr(relocation, "ABANDONED", 60.0)
    assert (await relocated(federation, "episodic")).verified == 50


async def test_only_one_tier_is_on_its_way_at_a_time(
    world: World, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve(NEW, "episodic")
    world.serve("http://semantic-2", "semantic")
    await federation.write([draft(f"{n}", tier="episodic") for n in range(50)], EVERYONE)
    monkeypatch.setattr(relocation, "STEP", 0.0)
    await federation.relocate("episodic", NEW, pause=PAUSE)
    with pytest.raises(A2MError, match="on its way") as refused:
        await federation.relocate("semantic", "http://semantic-2", pause=PAUSE)
    assert refused.value.retryable
    await relocated(federation, "episodic")
    await relocated(federation, "semantic", "http://semantic-2")


def test_a_configuration_that_names_another_place_is_heeded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "places.json"
    tiers = tuple(config.model_copy(update={"url": OLD[config.name]}) for config in CHAIN)
    config = FederationConfig(tiers=tiers)
    places = Places(path)
    places.over(config)
    places.move("episodic", NEW)
    assert [tier.url for tier in Places(path).over(config).tiers][1] == NEW
    rewritten = (tiers[0], tiers[1].model_copy(update={"url": "http://third"}), *tiers[2:])
    assert Places(path).over(FederationConfig(tiers=rewritten)).tiers == rewritten
    assert "was moved from http://episodic to http://new, but is asked at http://third" in caplog.text
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"places.json"):
        Places(path).over(config)


def test_without_a_file_a_tier_has_no_other_place(tmp_path: Path) -> None:
    with pytest.raises(A2MError, match="A2M_ROUTER_PLACES_FILE"):
        Places(None).check()
    with pytest.raises(A2MError, match="A2M_ROUTER_PLACES_FILE"):
        Places(tmp_path / "nowhere" / "places.json").check()
