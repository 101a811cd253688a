"""Reads over the engine: everything that matches, in the order of writing, and the nearest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from a2m_semantic.engine import All, Between, Clause, Engine, Stored, Terms

PAGE = 1_000
ORDER = ("id", "seq")


async def pages(engine: Engine, where: Clause, fields: Sequence[str]) -> AsyncIterator[list[Stored]]:
    """Everything that matches, in pages, in the order of point ids."""
    after: str | None = None
    while True:
        found, after = await engine.scroll(where, fields, PAGE, after)
        yield found
        if after is None:
            return


async def everything(engine: Engine, where: Clause, fields: Sequence[str]) -> list[Stored]:
    """Everything that matches, oldest first (by `seq` then id)."""
    found = [stored async for page in pages(engine, where, [*ORDER, *fields]) for stored in page]
    return sorted(found, key=place)


async def newest(engine: Engine, where: Clause, fields: Sequence[str], limit: int) -> list[Stored]:
    """At least `limit` of the newest, if there are as many, and all that share the last one's `seq`.

    Oldest first. The caller cuts, for it knows which of equal `seq` comes first.
    """
    return await _from(engine, where, fields, limit, None, descending=True)


async def following(
    engine: Engine, where: Clause, fields: Sequence[str], limit: int, after: tuple[int, str] | None
) -> list[Stored]:
    """Up to `limit` beyond a (`seq`, id), oldest first."""
    if after is None:
        return (await _from(engine, where, fields, limit, None, descending=False))[:limit]
    seq, record_id = after
    tied = await everything(engine, All((where, Between("seq", gte=seq, lte=seq))), fields)
    found = [stored for stored in tied if place(stored) > (seq, record_id)]
    if len(found) < limit:
        found += await _from(engine, where, fields, limit - len(found), seq + 1, descending=False)
    return found[:limit]


async def best(
    engine: Engine, query: Sequence[float] | Terms, where: Clause, fields: Sequence[str], limit: int
) -> list[Stored]:
    """The `limit` nearest, best first; equal scores by `seq` descending, then id, however many there are."""
    wanted = limit + 8
    while True:
        found = await engine.nearest(query, where, [*ORDER, *fields], wanted)
        if len(found) < wanted or found[-1].score != found[limit - 1].score:
            break
        wanted *= 4
    found.sort(key=lambda stored: (-stored.score, -stored.payload["seq"], stored.payload["id"]))
    return found[:limit]


def place(stored: Stored) -> tuple[int, str]:
    """Where a point stands in the order of writing."""
    return stored.payload["seq"], stored.payload["id"]


async def _from(
    engine: Engine,
    where: Clause,
    fields: Sequence[str],
    limit: int,
    start: int | None,
    *,
    descending: bool,
) -> list[Stored]:
    """At least `limit` in order from a `seq`, with the whole of the last tie; oldest first.

    The engine orders by one key and pages by it, so a tie that a page cuts is fetched whole.
    """
    found: dict[str, Stored] = {}
    while True:
        size = min(limit - len(found) + 1, PAGE)
        page = await engine.ordered(
            where, [*ORDER, *fields], size, by="seq", descending=descending, start=start
        )
        found |= {stored.id: stored for stored in page}
        cut = len(page) == size and page[-1].payload["seq"] == page[-2].payload["seq"]
        if len(page) < size or (len(found) > limit and not cut):
            break
        last = page[-1].payload["seq"]
        tied = await everything(engine, All((where, Between("seq", gte=last, lte=last))), fields)
        found |= {stored.id: stored for stored in tied}
        if len(found) >= limit:
            break
        start = last - 1 if descending else last + 1
    return sorted(found.values(), key=place)
