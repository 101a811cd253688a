"""`memory/context`: what an agent needs before a model call, in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from a2m_protocol.errors import JsonObject, invalid_params
from a2m_protocol.where import Condition, Op, Where
from a2m_server.assemble import PARTS, Budget, Part, assemble
from a2m_server.call import Call
from a2m_server.methods.reading import silent
from a2m_server.params import DEFAULT_RECALL, Params, kind_of
from a2m_server.values import ACTIVE, KEYED, Degraded, Filter, Found, Page, Search

DEFAULTS: Mapping[Part, int] = {
    "transcript": 50,
    "facts": 200,
    "episodes": DEFAULT_RECALL,
    "procedures": 3,
}
SPARE = 3
"""How many times the episodes wanted are looked for: some may be in the transcript or the facts."""
SEARCHED = frozenset({"episodic", "semantic", None})
"""Kinds of tiers in which episodes are looked for: working is replayed, procedures are found by task."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a call asks for; a text without a word is None."""

    query: str | None
    task: str | None
    session: str | None
    where: Where
    limits: Mapping[Part, int]
    budget: Budget | None


async def context(call: Call) -> JsonObject:
    """The transcript, the facts, the episodes and the procedures that fit, as records and as a prompt."""
    asked = _read(call)
    await call.server.accesses.settle()
    # All reads go out at once.
    transcript, facts, episodes, procedures = await asyncio.gather(
        _transcript(call, asked),
        _facts(call, asked),
        _episodes(call, asked, SPARE * asked.limits["episodes"]),
        _procedures(call, asked),
    )
    shown = {record.id for found in (transcript, facts) for record in found.records}
    wanted, looked_for = asked.limits["episodes"], len(episodes.records)
    fresh = [record for record in episodes.records if record.id not in shown]
    if len(fresh) < wanted and looked_for >= SPARE * wanted:
        episodes = await _episodes(call, asked, wanted + len(shown))
        fresh = [record for record in episodes.records if record.id not in shown]
    chosen = assemble(transcript.records, facts.records, fresh[:wanted], procedures.records, asked.budget)
    call.count_accesses([*chosen.parts["episodes"], *chosen.parts["procedures"]])
    result: JsonObject = {part: [*call.wire(records)] for part, records in chosen.parts.items()}
    result |= {"prompt": chosen.prompt, "prompt_ids": [*chosen.prompt_ids]}
    if chosen.omitted:
        result["omitted"] = {**chosen.omitted}
    return result | silent(_missing(transcript, facts, episodes, procedures))


async def _transcript(call: Call, asked: _Asked) -> Found:
    limit = asked.limits["transcript"]
    if asked.session is None or not limit:
        return Found([])
    where = Where((_in("session", asked.session),))
    return await call.store.timeline(Page(Filter(call.scope, where), limit))


async def _facts(call: Call, asked: _Asked) -> Found:
    """The newest facts that the limit allows: as a rule, all."""
    tiers, limit = _tiers(call, frozenset({"semantic"})), asked.limits["facts"]
    if not tiers or not limit:
        return Found([])
    where = Where((_in("tier", *tiers), KEYED))
    return await call.store.timeline(Page(Filter(call.scope, where, statuses=ACTIVE), limit))


async def _episodes(call: Call, asked: _Asked, limit: int) -> Found:
    return await _search(call, asked.query, SEARCHED, asked.where, limit)


async def _procedures(call: Call, asked: _Asked) -> Found:
    text = asked.task or asked.query
    return await _search(call, text, frozenset({"procedural"}), Where(), asked.limits["procedures"])


async def _search(
    call: Call, text: str | None, kinds: frozenset[str | None], where: Where, limit: int
) -> Found:
    tiers = _tiers(call, kinds)
    if text is None or not tiers or not limit:
        return Found([])
    selected = Filter(call.scope, Where((*where.conditions, _in("tier", *tiers))))
    most = call.server.limits.max_recall_limit
    return await call.store.search(Search(selected, min(limit, most), text=text))


def _in(field: str, *values: str) -> Condition:
    return Condition(field, False, Op.IN, values)


def _tiers(call: Call, kinds: frozenset[str | None]) -> list[str]:
    return [tier.name for tier in call.info.tiers if tier.kind in kinds]


def _missing(*found: Found) -> Sequence[Degraded]:
    """Each tier that had no part in one of the reads, once."""
    return [*{degraded.tier: degraded for one in found for degraded in one.degraded}.values()]


def _read(call: Call) -> _Asked:
    params = call.params
    return _Asked(
        query=params.words("query"),
        task=params.words("task"),
        session=params.name("session"),
        where=call.where(),
        limits=_limits(call),
        budget=_budget(params.raw("budget")),
    )


def _limits(call: Call) -> Mapping[Part, int]:
    given = _members("limits", call.params.raw("limits"), PARTS)
    most = call.server.limits.max_recall_limit
    limits: dict[Part, int] = {part: min(number, most) for part, number in DEFAULTS.items()}
    for part in PARTS:
        limit = given.integer(f"limits.{part}")
        if limit is None:
            continue
        if limit > most:
            raise invalid_params(f"limits.{part}: {limit} is above this server's max_recall_limit of {most}")
        limits[part] = limit
    return limits


def _budget(value: object) -> Budget | None:
    if value is None:
        return None
    if isinstance(value, dict):
        given = _members("budget", cast("object", value), ("characters", "tokens"))
        characters, tokens = given.integer("budget.characters"), given.integer("budget.tokens")
    else:
        characters, tokens = Params({"budget": value}).integer("budget"), None
    amount = tokens if characters is None else characters
    if amount is None or (characters is not None and tokens is not None):
        raise invalid_params("budget: expected a number of characters, or an object of characters or tokens")
    if amount < 1:
        raise invalid_params(f"budget: expected at least 1, not {amount}; leave it out for no budget")
    return Budget(amount, tokens=characters is None)


def _members(name: str, value: object, known: Sequence[str]) -> Params:
    """What an object has, of known names alone, each under `name.` and its own."""
    if value is None:
        return Params({})
    if not isinstance(value, dict):
        raise invalid_params(f"{name}: expected an object, not {kind_of(value)}")
    given = cast("dict[str, object]", value)
    for key in given:
        if key not in known:
            raise invalid_params(f"{name}: {key[:40]!r} is not known; expected {', '.join(known)}")
    return Params({f"{name}.{key}": held for key, held in given.items()})
