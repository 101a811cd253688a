"""Races by name, each over tiers in this process and over the wire; and each with its guards taken out.

Where two guards protect the same thing, either alone holds, and only without both the race is lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
import router_guards as router
import tier_guards as tier
from router_guards import Patch, Removal

from a2m_protocol.types import Draft
from a2m_router.federation import Federation
from a2m_server.contract import draft, name, within
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Page, Scope, Search

Stores = Mapping[str, MemoryTier]


def guarded(**without: Removal) -> pytest.MarkDecorator:
    """Run a race with all guards, with each of these taken out, and, of several, with all of them out.

    `holds` says whether the race is then still won.
    """
    alone = len(without) == 1
    cases = [pytest.param(None, True, id="guarded")]
    cases += [pytest.param(removal, not alone, id=f"without-{guard}") for guard, removal in without.items()]
    if not alone:
        cases.append(pytest.param(router.all_of(*without.values()), False, id="without-any"))
    return pytest.mark.parametrize(("removal", "holds"), cases)


class Gate:
    """Stops the first call of a store's method, before it is made, until it is let through."""

    def __init__(self, patch: Patch, store: MemoryTier, method: str) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()
        call: Callable[..., Awaitable[object]] = getattr(store, method)

        async def gated(*given: object, **named: object) -> object:
            if not self._reached.is_set():
                self._reached.set()
                await self._open.wait()
            return await call(*given, **named)

        patch.setattr(store, method, gated)

    async def reached(self) -> None:
        async with asyncio.timeout(5):
            await self._reached.wait()

    def let_through(self) -> None:
        self._open.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 polls a store
            await asyncio.sleep(0)


async def done_or_waiting(federation: Federation, *work: asyncio.Task[object]) -> None:
    """Until all of `work` is done, or somebody waits for a lock."""

    def waiting() -> bool:
        return any(users > 1 for _, users in federation._locks._held.values())

    await until(lambda: waiting() or all(task.done() for task in work))


async def quiet(federation: Federation) -> None:
    """Until nothing is on the move."""
    await until(lambda: not federation._locks._held and not federation._keeper._due)


def holders(stores: Stores, record_id: str) -> list[str]:
    return [tier for tier, store in stores.items() if record_id in store._ledger.records]


@guarded(
    locks=router.locks,
    tombstones=tier.forgotten_refuses,
    undoing=tier.deletes_answering("forgotten", "moved"),
)
async def test_what_is_forgotten_during_a_spill_stays_forgotten(
    federation: Federation, stores: Stores, monkeypatch: Patch, removal: Removal | None, holds: bool
) -> None:
    if removal is not None:
        removal(monkeypatch)
    copying = Gate(monkeypatch, stores["episodic"], "transfer")
    session = name()
    drafts = [draft(str(n), session=session) for n in range(5)]
    await federation.write(drafts, EVERYONE)
    await copying.reached()
    forgetting = asyncio.create_task(federation.forget(Filter(ids=(drafts[0].id,))))
    await done_or_waiting(federation, forgetting)
    copying.let_through()
    assert (await forgetting).ids == [drafts[0].id]
    await quiet(federation)
    await until(lambda: holders(stores, drafts[0].id) == ([] if holds else ["episodic"]))
    seen = (await federation.timeline(Page(Filter()))).records
    assert [r.content for r in seen] == [str(n) for n in range(1 if holds else 0, 5)]


@guarded(locks=router.locks)
async def test_a_key_rewritten_during_a_spill_is_rewritten_where_it_is_then(
    federation: Federation, stores: Stores, monkeypatch: Patch, removal: Removal | None, holds: bool
) -> None:
    if removal is not None:
        removal(monkeypatch)
    session = name()
    first, second = draft("old", key="k", session=session), draft("new", key="k", session=session)
    await federation.write([first, *(draft(session=session) for _ in range(3))], EVERYONE)
    writing = Gate(monkeypatch, stores["working"], "write")
    rewriting = asyncio.create_task(federation.write([second], EVERYONE))
    await writing.reached()
    closing = asyncio.create_task(federation.close_session(session, EVERYONE))
    await done_or_waiting(federation, closing)
    writing.let_through()
    [written] = await rewriting
    await closing
    await quiet(federation)
    seen = (await federation.timeline(Page(within(session)))).records
    keyed = [(r.id, r.content, r.revision) for r in seen if r.key == "k"]
    assert (keyed == [(first.id, "new", 1)]) == holds
    assert ((written.id, written.outcome) == (first.id, "replaced")) == holds


@guarded(locks=router.locks, absence=tier.deletes_answering("moved", "changed"))
async def test_two_closes_at_once_move_a_session_once(
    federation: Federation, stores: Stores, monkeypatch: Patch, removal: Removal | None, holds: bool
) -> None:
    if removal is not None:
        removal(monkeypatch)
    session = name()
    drafts = [draft(str(n), session=session) for n in range(3)]
    await federation.write(drafts, EVERYONE)
    deleting = Gate(monkeypatch, stores["working"], "delete_if")
    first = asyncio.create_task(federation.close_session(session, EVERYONE))
    await deleting.reached()
    second = asyncio.create_task(federation.close_session(session, EVERYONE))
    await done_or_waiting(federation, second)
    deleting.let_through()
    moved = [*(await first).moved, *(await second).moved]
    assert sorted(moved) == sorted(d.id for d in drafts)
    kept = [holders(stores, d.id) for d in drafts]
    assert kept == [["episodic"] if holds else []] * 3


@guarded(looking=router.looking_for_grown_groups)
async def test_a_late_tool_result_joins_its_group_that_is_on_the_move(
    federation: Federation, stores: Stores, monkeypatch: Patch, removal: Removal | None, holds: bool
) -> None:
    if removal is not None:
        removal(monkeypatch)
    session, group = name(), name("g")
    call, result = (draft(text, session=session, group=group) for text in ("call", "result"))
    await federation.write([call], EVERYONE)
    copying = Gate(monkeypatch, stores["episodic"], "transfer")
    closing = asyncio.create_task(federation.close_session(session, EVERYONE))
    await copying.reached()
    await federation.write([result], EVERYONE)
    copying.let_through()
    assert [*(await closing).moved] == [call.id]
    await federation.consolidate()
    assert holders(stores, result.id) == (["episodic"] if holds else ["working"])
    seen = (await federation.timeline(Page(within(session)))).records
    assert [r.content for r in seen] == ["call", "result"]


@guarded(looking=router.looking_for_grown_groups, telling=tier.telling_of_other_tiers)
async def test_a_late_tool_result_joins_its_group_that_has_spilled(
    federation: Federation, stores: Stores, monkeypatch: Patch, removal: Removal | None, holds: bool
) -> None:
    if removal is not None:
        removal(monkeypatch)
    session, group = name(), name("g")
    call, result = (draft(text, session=session, group=group) for text in ("call", "result"))
    await federation.write([call, *(draft(session=session) for _ in range(4))], EVERYONE)
    await until(lambda: holders(stores, call.id) == ["episodic"])
    await federation.write([result], EVERYONE)
    await federation.consolidate()
    await quiet(federation)
    await until(lambda: holders(stores, result.id) == ["episodic"] or not holds)
    assert holders(stores, result.id) == (["episodic"] if holds else ["working"])
    seen = (await federation.timeline(Page(within(session)))).records
    assert [r.content for r in seen if r.group] == ["call", "result"]


@guarded(tombstones=tier.answers_to_retries)
async def test_a_retry_during_a_promotion_changes_nothing(
    federation: Federation, stores: Stores, monkeypatch: Patch, removal: Removal | None, holds: bool
) -> None:
    if removal is not None:
        removal(monkeypatch)
    one = draft("fact", session=name())
    await federation.write([one], EVERYONE)
    await federation.close_session(str(one.session), EVERYONE)
    deleting = Gate(monkeypatch, stores["episodic"], "delete_if")
    promoting = asyncio.create_task(federation.promote([one.id], "semantic", 0.0, EVERYONE))
    await deleting.reached()
    placed = one.model_copy(update={"tier": "episodic"})
    retrying = asyncio.create_task(federation.write([placed], EVERYONE))
    [plain] = await federation.write([one], EVERYONE)
    await done_or_waiting(federation, retrying)
    deleting.let_through()
    assert [*await promoting] == [one.id]
    [again] = await retrying
    assert (plain.id, again.id, again.outcome) == (one.id, one.id, "existing")
    assert (plain.outcome == "existing") == holds
    assert holders(stores, one.id) == (["semantic"] if holds else ["working", "semantic"])


class Conversation:
    """A session of one owner, that is written, read and closed; `amiss` is what was read wrongly."""

    def __init__(self, federation: Federation, owner: str, session: str) -> None:
        self._federation = federation
        self._scope = Scope.of(owner)
        self.owner = owner
        self.session = session
        self.drafts: list[Draft] = []
        self.amiss: list[list[str]] = []

    async def run(self, turns: int) -> None:
        for n in range(turns):
            turn = draft(f"word {n}", owner=self.owner, session=self.session)
            await self._federation.write([turn], self._scope)
            self.drafts.append(turn)
            await self.read()
            if n == turns - 2:
                await self._federation.close_session(self.session, self._scope)

    async def read(self) -> None:
        seen = (await self._federation.timeline(Page(within(self.session, self._scope)))).records
        if [r.id for r in seen] != [d.id for d in self.drafts]:
            self.amiss.append([f"{r.owner} {r.content}" for r in seen])

    async def search(self) -> Sequence[str | None]:
        found = await self._federation.search(Search(Filter(self._scope), 500, text="word"))
        return [r.owner for r in found.records]


def jitter(patch: Patch, stores: Stores) -> None:
    """Calls take a while, each its own, so that all sorts of orders come about, the same in every run."""
    dice = random.Random(7)
    pauses = {"entries": 9, "read": 9, "write": 9, "transfer": 9, "delete_if": 9, "settle": 9, "timeline": 99}

    def slow(call: Callable[..., Awaitable[object]], most: int) -> Callable[..., Awaitable[object]]:
        async def slowed(*given: object, **named: object) -> object:
            for _ in range(dice.randrange(most)):
                await asyncio.sleep(0)
            return await call(*given, **named)

        return slowed

    for store in stores.values():
        for method, most in pauses.items():
            patch.setattr(store, method, slow(getattr(store, method), most))


@pytest.mark.parametrize(
    ("removal", "holds"),
    [
        pytest.param(None, True, id="guarded"),
        pytest.param(router.waiting_for_reads, False, id="without-waiting"),
        pytest.param(tier.marks_of_sessions, False, id="without-marks"),
    ],
)
async def test_fifty_concurrent_sessions_of_two_owners_stay_whole_and_apart(
    federation: Federation, stores: Stores, monkeypatch: Patch, removal: Removal | None, holds: bool
) -> None:
    if removal is not None:
        removal(monkeypatch)
    jitter(monkeypatch, stores)
    talks = [Conversation(federation, owner, f"s{n}") for n in range(25) for owner in ("ann", "bob")]
    await asyncio.gather(*(talk.run(10) for talk in talks))
    await quiet(federation)
    for talk in talks:
        await talk.read()
    assert ([talk.amiss for talk in talks if talk.amiss] == []) == holds
    assert {*await talks[0].search()} == {"ann"}
    assert {*await talks[1].search()} == {"bob"}
    kept = [holders(stores, d.id) for talk in talks for d in talk.drafts]
    assert all(len(tiers) == 1 for tiers in kept)
    assert sum((await federation.counts(EVERYONE)).values()) == len(kept) == 500
