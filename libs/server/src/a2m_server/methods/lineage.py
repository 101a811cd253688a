"""`memory/trace` and `memory/purge`: where a record came from, what came of it, and undoing a source."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from a2m_protocol.errors import Json, JsonObject, quota_exceeded
from a2m_protocol.types import MAX_RECORDS, Record
from a2m_protocol.where import AT, MAX_VALUES, SOURCE, SOURCES, Condition, Op, Where, parse_where
from a2m_server import events
from a2m_server.call import Call
from a2m_server.methods.extensions import MAX_ENTRIES, tier_of
from a2m_server.methods.reading import silent
from a2m_server.values import Degraded, Entry, Filter, Page

MAX_TRACED = 10_000
"""Records in one direction of a trace."""
LISTED = 1_000
"""Ids that a dry run names."""
STEP = 500
"""Records of a source that one purge forgets, with all that was derived from them."""
ROUNDS = 5
"""How often it looks again for what was derived from them while it forgot."""


async def trace(call: Call) -> JsonObject:
    """A record of an id, what it was derived from and what was derived from it, over all tiers of ours.

    The answer's `record` is null where there is none that the caller may see; `sources` and `derived` are
    records, each with its `depth` (1 for the nearest). A source that is no more is `{id, depth, gone: true}`.
    Raises -32006 where more than `MAX_TRACED` belong to it.
    """
    walk = _Walk(call)
    record_id = call.params.required("id")
    here = await walk.named([record_id])
    sources, derived = await asyncio.gather(walk.up(record_id, here), walk.down([record_id]))
    return {
        "record": call.wire(here)[0] if here else None,
        "sources": sources,
        "derived": derived,
        **silent([*walk.degraded.values()]),
    }


async def purge(call: Call) -> JsonObject:
    """Forget what came from a `source`, `since` a time, and all that was derived from it.

    The answer counts what was found of either. A `dry` run adds the first `LISTED` of their `ids`. Else it is
    a step of at most `STEP` records of the source and what came of them: {source, derived, forgotten, tiers,
    history?, more}, to be repeated while there is `more`. Every tier of ours must answer. What is furthest
    derived goes first, so that a step that was cut short is finished by another.
    """
    source = _source(call)
    if call.params.flag("dry"):
        depths = await _closure(call, await _every(call, source))
        result, found = _found(depths)
        return {**result, "ids": [*found[:LISTED]]}
    page = await _page(call, source, None)
    depths = await _closure(call, [entry.id for entry in page[:STEP]])
    result, found = _found(depths)
    receipt = _Receipt()
    known = {*found}
    for _ in range(ROUNDS):
        if not found:
            break
        await _forget(call, found, receipt)
        # What was derived from them meanwhile.
        _, found = _found(await _closure(call, await _derived_from_any(call, known), known))
        known.update(found)
    return {**result, **receipt.told(), "more": len(page) > STEP or bool(found)}


@dataclass(slots=True)
class _Receipt:
    """What forgets did, added up."""

    forgotten: int = 0
    tiers: Counter[str] = field(default_factory=Counter[str])
    history: Counter[str] = field(default_factory=Counter[str])

    def told(self) -> JsonObject:
        told: JsonObject = {"forgotten": self.forgotten, "tiers": dict(self.tiers)}
        return {**told, "history": dict(self.history)} if self.history else told


async def _forget(call: Call, ids: Sequence[str], receipt: _Receipt) -> None:
    for part in _parts(ids, MAX_RECORDS):
        done = await call.store.forget(Filter(call.writes, ids=tuple(part)))
        call.peer.removed += done.ids
        receipt.forgotten += len(done.ids)
        receipt.tiers.update(done.tiers)
        receipt.history.update(done.history)
        if done.ids:
            owners = {i: done.owners.get(i, events.UNKNOWN) for i in done.ids}
            call.server.events.add(events.forgotten(owners))


class _Walk:
    """One trace: records of its caller's scope, level by level."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.degraded: dict[str, Degraded] = {}

    async def named(self, ids: Sequence[str]) -> list[Record]:
        return await self._select(Filter(self._call.scope, ids=tuple(ids)))

    async def up(self, record_id: str, begun: Sequence[Record]) -> list[Json]:
        """What records were derived from, and that in turn."""
        told: list[Json] = []
        seen = {record_id}
        level = begun
        depth = 0
        while wanted := [i for i in _derived_from(level) if i not in seen]:
            depth += 1
            seen.update(wanted)
            _check_most(len(seen))
            level = await self.named(wanted)
            there = {record.id: record for record in level}
            told += [self._told(there.get(i), i, depth) for i in wanted]
        return told

    async def down(self, ids: Sequence[str]) -> list[Json]:
        """What was derived from records, and from that in turn."""
        told: list[Json] = []
        seen = {*ids}
        level = [*ids]
        depth = 0
        while level:
            depth += 1
            found: list[Record] = []
            for part in _parts(level, MAX_VALUES):
                found += await self._select(Filter(self._call.scope, _derived(part)))
            fresh = {record.id: record for record in found if record.id not in seen}
            seen.update(fresh)
            _check_most(len(seen))
            told += [self._told(record, record.id, depth) for record in fresh.values()]
            level = [*fresh]
        return told

    async def _select(self, selected: Filter) -> list[Record]:
        found = await self._call.store.timeline(Page(selected))
        self.degraded |= {degraded.tier: degraded for degraded in found.degraded}
        return found.records

    def _told(self, record: Record | None, record_id: str, depth: int) -> JsonObject:
        if record is None:
            return {"id": record_id, "depth": depth, "gone": True}
        return {**self._call.wire([record])[0], "depth": depth}


def _found(depths: Sequence[Sequence[str]]) -> tuple[JsonObject, list[str]]:
    """How many records are of a source and how many derived, and all their ids, the furthest first."""
    found = [record_id for depth in reversed(depths) for record_id in depth]
    origin = len(depths[0]) if depths else 0
    return {"source": origin, "derived": len(found) - origin}, found


async def _closure(call: Call, begun: Sequence[str], known: Iterable[str] = ()) -> list[list[str]]:
    """Ids, and by depth those of what was derived from them, without what is `known`."""
    seen = {*known}
    depths: list[list[str]] = []
    level = [*begun]
    while level:
        seen.update(level)
        depths.append(level)
        level = [i for i in await _derived_from_any(call, level) if i not in seen]
    return depths


async def _derived_from_any(call: Call, ids: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for part in _parts([*ids], MAX_VALUES):
        found |= dict.fromkeys(await _every(call, _derived(part)))
    return [*found]


async def _every(call: Call, where: Where) -> list[str]:
    """The ids of all records that a filter selects, in every tier of ours."""
    ids: list[str] = []
    after: tuple[int, str] | None = None
    while True:
        page = await _page(call, where, after)
        ids += [entry.id for entry in page]
        if len(page) < MAX_ENTRIES:
            return ids
        after = (page[-1].seq, page[-1].id)


async def _page(call: Call, where: Where, after: tuple[int, str] | None) -> list[Entry]:
    return await tier_of(call).entries(Filter(call.writes, where), MAX_ENTRIES, after)


def _source(call: Call) -> Where:
    asked: JsonObject = {SOURCE: call.params.required("source")}
    since = call.params.text("since")
    if since is not None:
        asked[AT] = {"gte": since}
    return parse_where(asked, ())


def _derived(ids: Iterable[str]) -> Where:
    return Where((Condition(SOURCES, True, Op.IN, tuple(ids)),))


def _derived_from(records: Iterable[Record]) -> list[str]:
    named = (r.provenance.derived_from or () for r in records if r.provenance is not None)
    return [*dict.fromkeys(i for ids in named for i in ids)]


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[at : at + size] for at in range(0, len(ids), size))


def _check_most(count: int) -> None:
    if count > MAX_TRACED:
        raise quota_exceeded(f"more than {MAX_TRACED} records belong to it: trace one that is nearer to them")
