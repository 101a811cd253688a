"""The verdict on a run: what must hold at any moment, of every read, and after the next pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from explorer import Ending, Violation
from oracle import Read, State, check_read, possible

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft, Record
from a2m_router.federation import Federation
from a2m_server.contract import within
from a2m_server.values import EVERYONE, Filter, Page, Search

if TYPE_CHECKING:
    from scenes import Scene

COUNTED = {"salience", "access_count", "accessed_at"}
MOVED = {"etag", "moves", "tier", "arrival", "score"}
REWRITTEN = {"content", "revision", "aliases"}


def check_always(scene: Scene) -> None:
    """At any moment everything is somewhere, and a group whole in one tier, unless it may be forgotten."""
    doomed = {deed.thing for deed in scene.deeds if deed.forgets}
    held = [store.ledger.records for store in scene.stores.values()]
    groups: dict[str, list[str]] = defaultdict(list)
    for thing, record in scene.begun.items():
        if thing not in doomed:
            groups[record.group or thing].append(thing)
    for group, things in groups.items():
        for thing in things:
            if not any(thing in records for records in held):
                raise Violation(f"I1: {thing} is nowhere")
        if not any(all(thing in records for thing in things) for records in held):
            raise Violation(f"I5: group {group} is whole in no tier")


async def judge(scene: Scene, ending: Ending) -> None:
    """After a crash, repair as a start does; else let each router pass once. Then look at everything."""
    if not (ending.crashed or scene.plan.loses or scene.plan.routers == "apart"):
        _check_ended(scene)
    if ending.crashed:
        await scene.router().consolidate()
        for call in ending.late:
            with suppress(A2MError):
                await call()
        await scene.router().consolidate()
    for router in scene.routers:
        await router.consolidate()
    everything = Read(tuple(scene.things), scene.ended, frozenset(range(len(scene.deeds))))
    _check_held(scene, everything)
    for read in [*scene.reads, *await _final_reads(scene, everything)]:
        if read.ended:
            _check_read(scene, read)
    await _check_imports(scene, everything)


async def _final_reads(scene: Scene, everything: Read) -> list[Read]:
    router = scene.router()
    about = everything.things, everything.after, everything.known
    session = (await router.timeline(Page(within("s")))).records
    recalled = (await router.search(Search(Filter(), 9, text="words"))).records
    reads = [Read(*about, session, ordered=True, ended=True), Read(*about, recalled, ended=True)]
    keyed = tuple(thing for thing, draft in scene.drafts.items() if draft.key == "k")
    if keyed:
        fetched = (await router.fetch("k", EVERYONE, vectors=False)).record
        reads.append(Read(keyed, *about[1:], [fetched] if fetched else [], ended=True))
    return reads


def _check_ended(scene: Scene) -> None:
    """Where nobody died and no lease was lost, moves have ended by themselves."""
    for thing, ids in scene.things.items():
        held = [tier for tier, store in scene.stores.items() if ids & store.ledger.records.keys()]
        if len(held) > 1:
            raise Violation(f"I2: {thing} was left in {held}")


def _check_read(scene: Scene, read: Read) -> None:
    for thing in read.things:
        check_read(scene.starts[thing], scene.deeds, thing, scene.things[thing], read)
    if read.ordered:
        names = [thing for r in read.shown for thing, ids in scene.things.items() if r.id in ids]
        if names != [thing for thing in scene.things if thing in names]:
            raise Violation(f"I9: a transcript replays as {names}")


def _check_held(scene: Scene, final: Read) -> None:
    groups: dict[str, set[str]] = defaultdict(set)
    for thing, ids in scene.things.items():
        held = [
            (tier, store.ledger.records[i])
            for tier, store in scene.stores.items()
            for i in ids & store.ledger.records.keys()
        ]
        states = possible(scene.starts[thing], scene.deeds, thing, final)
        if len(held) > 1:
            raise Violation(f"I2: {thing} is held in {[tier for tier, _ in held]}")
        if not held:
            if all(state.fact is not None for state in states):
                raise Violation(f"I1: {thing} is in no tier")
            continue
        [(tier, record)] = held
        if all(state.fact is None for state in states):
            raise Violation(f"I3: {thing} came back to {tier}")
        _check_same(scene, thing, record, states)
        if record.arrival is not None:
            raise Violation(f"I2: {thing} still has the mark of a move that has not ended")
        if record.group is not None:
            groups[record.group].add(tier)
    for group, tiers in groups.items():
        if len(tiers) > 1:
            raise Violation(f"I5: group {group} is in {sorted(tiers)}")


def _check_same(scene: Scene, thing: str, record: Record, states: set[State]) -> None:
    revisions = {state.fact.revision for state in states if state.fact is not None}
    if record.revision not in revisions:
        raise Violation(f"I4: {thing} has revision {record.revision} of {revisions}")
    begun = scene.begun.get(thing)
    if begun is None:
        return
    if (record.id, record.seq) != (begun.id, begun.seq):
        if not any(state.forbidden for state in states):
            raise Violation(f"I6: {thing} is not the record that it was")
        return
    but = MOVED | COUNTED | (REWRITTEN if record.revision else set[str]())
    if record.model_dump(exclude=but) != begun.model_dump(exclude=but):
        raise Violation(f"I6: {thing} changed: {record.model_dump(exclude=but)}")
    sums = _sums(begun.salience, scene.added.get(thing, ()))
    if record.salience not in sums:
        raise Violation(f"I1: a reinforcement was lost or doubled: {record.salience} of {sorted(sums)}")
    counts = scene.touched.get(thing, [])
    if not sum(counts) <= record.access_count - begun.access_count <= len(counts):
        raise Violation(f"I1: an access was lost or doubled: {record.access_count} of {len(counts)}")


def _sums(base: float, added: Iterable[tuple[float, int | None]]) -> set[float]:
    """What `base` may have become; of an addition whose answer is not known (None), both."""
    sums = {base}
    for amount, told in added:
        more = {each + amount for each in sums}
        sums = more if told else sums if told == 0 else sums | more
    return sums


async def _check_imports(scene: Scene, final: Read) -> None:
    """What is forgotten for good is refused as an import, in every tier, however far it had moved."""
    router: Federation = scene.router()
    for thing, record in scene.begun.items():
        states = possible(scene.starts[thing], scene.deeds, thing, final)
        if any(state.fact is not None for state in states):
            continue
        for tier, store in scene.stores.items():
            fields = record.model_dump(exclude={"etag", "score", "tier"}, exclude_none=True)
            draft = Draft.model_validate({**fields, "moves": 9, "tier": tier})
            await router.transfer([draft])
            if draft.id in store.ledger.records:
                raise Violation(f"I3: an import brought {thing} back to {tier}")
