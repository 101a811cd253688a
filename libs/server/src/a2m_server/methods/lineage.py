"""`memory/trace` and `memory/purge`: where a record came from, what came of it, and undoing a source."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from a2m_protocol.errors import Json, JsonObject, quota_exceeded
from a2m_protocol.types import MAX_RECORDS, Record
from a2m_protocol.where import (
    ANCESTORS,
    AT,
    MAX_VALUES,
    ORIGINS,
    SOURCE,
    SOURCES,
    Condition,
    Op,
    Where,
    parse_where,
)
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
    records, each with its `depth` (1 for the nearest; where what stood in between is no more, the least that
    it can be). A source that is no more is `{id, depth, gone: true}`. Raises -32006 where more than
    `MAX_TRACED` belong to it.
    """
    walk = _Walk(call)
    record_id = call.params.required("id")
    here = await walk.named([record_id])
    sources, derived = await asyncio.gather(walk.up(record_id, here), walk.down(record_id))
    return {
        "record": call.wire(here)[0] if here else None,
        "sources": sources,
        "derived": derived,
        **silent([*walk.degraded.values()]),
    }


async def purge(call: Call) -> JsonObject:
    """Forget what came from a `source`, `since` a time, and all that was derived from it.

    Also what was derived from records of the source that are no more. The answer counts what was found of
    either. A `dry` run adds the first `LISTED` of their `ids`. Else it is a step of at most `STEP` records of
    the source and what came of them: {source, derived, forgotten, tiers, history?, more}, to be repeated
    while there is `more`. Every tier of ours must answer. What is furthest derived goes first, so that a step
    that was cut short is finished by another. What is rewritten meanwhile from elsewhere stays.
    """
    asked = _Asked.of(call)
    if call.params.flag("dry"):
        closure = _Closure(call)
        await closure.add(_Found(asked.where, await _every(call, asked.where)))
        await closure.add_derived(await asked.orphans(call, closure.seen))
        return {**closure.told(), "ids": [*closure.ids[:LISTED]]}
    roots = [entry.id for entry in await _page(call, asked.where, None)]
    closure = _Closure(call)
    await closure.add(_Found(asked.where, roots[:STEP]))
    more = len(roots) > STEP
    if not more:
        orphans = await asked.orphans(call, closure.seen)
        more = len(orphans.ids) > STEP
        await closure.add_derived(_Found(orphans.where, orphans.ids[:STEP]))
    told = closure.told()
    receipt = _Receipt()
    for _ in range(ROUNDS):
        if not closure.ids:
            break
        await _forget(call, closure, receipt)
        # What was derived from them meanwhile.
        closure = _Closure(call, closure.seen)
        await closure.grow()
    return {**told, **receipt.told(), "more": more or bool(closure.ids)}


@dataclass(frozen=True, slots=True)
class _Found:
    """Ids, and the filter that found them, by which they are forgotten: what it no longer selects stays."""

    where: Where
    ids: list[str]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a purge names: the filter of its records, and that of what was derived from such."""

    where: Where
    derived: Where
    since: bool

    @classmethod
    def of(cls, call: Call) -> _Asked:
        source, since = call.params.required("source"), call.params.text("since")
        at: JsonObject = {} if since is None else {AT: {"gte": since}}
        return cls(
            parse_where({SOURCE: source, **at}, ()),
            parse_where({ORIGINS: source, **at}, ()),
            since is not None,
        )

    async def orphans(self, call: Call, known: set[str]) -> _Found:
        """What was derived from the source, beyond what is `known` to be.

        `since` a time, only where something that it was derived from is no more, so that nobody knows when
        that was written; else what it was derived from tells.
        """
        ids = [i for i in await _every(call, self.derived) if i not in known]
        if self.since and ids:
            ids = await _bereft(call, ids)
        return _Found(self.derived, ids)


class _Closure:
    """Records, and all that was derived from them, in order of their depth."""

    def __init__(self, call: Call, known: Iterable[str] = ()) -> None:
        self._call = call
        self.seen = {*known}
        self._levels: list[list[_Found]] = []
        self._origins = 0

    @property
    def ids(self) -> list[str]:
        """The furthest first."""
        return [i for found in self.found for i in found.ids]

    @property
    def found(self) -> list[_Found]:
        return [found for level in reversed(self._levels) for found in level]

    def told(self) -> JsonObject:
        return {"source": self._origins, "derived": len(self.ids) - self._origins}

    async def add(self, roots: _Found) -> None:
        """Add records of the source, and what was derived from them."""
        self._origins += len(roots.ids)
        await self.add_derived(roots)

    async def add_derived(self, found: _Found) -> None:
        """Add records, and what was derived from them."""
        level = self._fresh([found])
        while level:
            while level:
                level = await self._below(SOURCES, [i for one in level for i in one.ids])
            # Where what stood in between is no more.
            level = await self._below(ANCESTORS, self.seen)

    async def grow(self) -> None:
        """Add what was derived from what is known."""
        for name in (SOURCES, ANCESTORS):
            for found in await self._below(name, self.seen):
                await self.add_derived(found)

    async def _below(self, name: str, ids: Iterable[str]) -> list[_Found]:
        wheres = [_holding(name, part) for part in _parts([*ids], MAX_VALUES)]
        return self._fresh([_Found(where, await _every(self._call, where)) for where in wheres])

    def _fresh(self, found: Sequence[_Found]) -> list[_Found]:
        """A new level of what was not seen yet."""
        level: list[_Found] = []
        for one in found:
            ids = [i for i in dict.fromkeys(one.ids) if i not in self.seen]
            self.seen.update(ids)
            if ids:
                level.append(_Found(one.where, ids))
        if level:
            self._levels.append(level)
        return level


@dataclass(slots=True)
class _Receipt:
    """What forgets did, added up."""

    forgotten: int = 0
    tiers: Counter[str] = field(default_factory=Counter[str])
    history: Counter[str] = field(default_factory=Counter[str])

    def told(self) -> JsonObject:
        told: JsonObject = {"forgotten": self.forgotten, "tiers": dict(self.tiers)}
        return {**told, "history": dict(self.history)} if self.history else told


async def _forget(call: Call, closure: _Closure, receipt: _Receipt) -> None:
    for found in closure.found:
        for part in _parts(found.ids, MAX_RECORDS):
            done = await call.forget(Filter(call.writes, found.where, ids=tuple(part)))
            receipt.forgotten += len(done.ids)
            receipt.tiers.update(done.tiers)
            receipt.history.update(done.history)


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
        if wanted := [i for i in _ancestors(begun) if i not in seen]:
            there = {record.id: record for record in await self.named(wanted)}
            told += [self._told(there.get(i), i, 2) for i in wanted]
        return told

    async def down(self, record_id: str) -> list[Json]:
        """What was derived from a record, and from that in turn."""
        told: list[Json] = []
        seen = {record_id}
        level = [record_id]
        depth = 0
        while level:
            depth += 1
            level = await self._below(SOURCES, level, depth, seen, told)
        await self._below(ANCESTORS, [record_id], 2, seen, told)
        return told

    async def _below(
        self, name: str, ids: Sequence[str], depth: int, seen: set[str], told: list[Json]
    ) -> list[str]:
        found: list[Record] = []
        for part in _parts(ids, MAX_VALUES):
            found += await self._select(Filter(self._call.scope, _holding(name, part)))
        fresh = {record.id: record for record in found if record.id not in seen}
        seen.update(fresh)
        _check_most(len(seen))
        told += [self._told(record, record.id, depth) for record in fresh.values()]
        return [*fresh]

    async def _select(self, selected: Filter) -> list[Record]:
        found = await self._call.store.timeline(Page(selected))
        self.degraded |= {degraded.tier: degraded for degraded in found.degraded}
        return found.records

    def _told(self, record: Record | None, record_id: str, depth: int) -> JsonObject:
        if record is None:
            return {"id": record_id, "depth": depth, "gone": True}
        return {**self._call.wire([record])[0], "depth": depth}


async def _bereft(call: Call, ids: Sequence[str]) -> list[str]:
    """Those of some records of whose sources one is no more."""
    records: list[Record] = []
    for part in _parts(ids, MAX_RECORDS):
        records += (await call.store.timeline(Page(Filter(call.writes, ids=tuple(part))))).records
    there: set[str] = set()
    for part in _parts(_derived_from(records), MAX_ENTRIES):
        found = await tier_of(call).entries(Filter(call.scope, ids=tuple(part)), len(part), None)
        there.update(entry.id for entry in found)
    return [record.id for record in records if not there.issuperset(_derived_from([record]))]


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


def _holding(name: str, ids: Iterable[str]) -> Where:
    return Where((Condition(name, True, Op.IN, tuple(ids)),))


def _derived_from(records: Iterable[Record]) -> list[str]:
    named = (r.provenance.derived_from or () for r in records if r.provenance is not None)
    return [*dict.fromkeys(i for ids in named for i in ids)]


def _ancestors(records: Iterable[Record]) -> list[str]:
    named = (r.provenance.ancestors or () for r in records if r.provenance is not None)
    return [*dict.fromkeys(i for ids in named for i in ids)]


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[at : at + size] for at in range(0, len(ids), size))


def _check_most(count: int) -> None:
    if count > MAX_TRACED:
        raise quota_exceeded(f"more than {MAX_TRACED} records belong to it: trace one that is nearer to them")
