"""Entries of a tier, in pages and in whole groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from a2m_protocol.types import Record
from a2m_protocol.where import MAX_VALUES, Condition, Op, Scalar, Where
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, Entry, Filter

PAGE = 1_000
"""Entries that a tier lists in one answer."""


async def every_entry(store: TierStore, selected: Filter, *, since: int | None = None) -> list[Entry]:
    """All matching entries of a tier, oldest first; `since` a `seq`, where that is given."""
    if selected.ids is not None and len(selected.ids) > PAGE:
        found: list[Entry] = []
        for at in range(0, len(selected.ids), PAGE):
            part = replace(selected, ids=selected.ids[at : at + PAGE])
            found += await first_entries(store, part, None)
        return sorted(found, key=lambda entry: (entry.seq, entry.id))
    return await first_entries(store, selected, None, None if since is None else (since, ""))


async def first_entries(
    store: TierStore, selected: Filter, most: int | None, after: tuple[int, str] | None = None
) -> list[Entry]:
    """The oldest `most` matching entries beyond a place, or all."""
    entries: list[Entry] = []
    while most is None or len(entries) < most:
        wanted = PAGE if most is None else min(PAGE, most - len(entries))
        page = await store.entries(selected, wanted, after)
        entries += page
        if len(page) < wanted:
            break
        after = (page[-1].seq, page[-1].id)
    return entries


async def group_members(store: TierStore, entries: Iterable[Entry | Record]) -> list[Entry]:
    """What a tier holds of the groups that `entries` belong to."""
    entries = [entry for entry in entries if entry.group is not None]
    wanted = {(entry.owner, entry.group) for entry in entries}
    names = sorted({entry.group for entry in entries if entry.group is not None})
    members: list[Entry] = []
    for at in range(0, len(names), MAX_VALUES):
        part = names[at : at + MAX_VALUES]
        owners = {owner for owner, group in wanted if group in part}
        members += await every_entry(store, Filter(EVERYONE, any_of("group", part, "owner", [*owners])))
    return [entry for entry in members if (entry.owner, entry.group) in wanted]


def any_of(*pairs: str | Sequence[Scalar]) -> Where:
    """A filter of alternatives on record fields, from field, values, field, values."""
    fields = zip(pairs[::2], pairs[1::2], strict=True)
    return Where(tuple(Condition(str(field), False, Op.IN, tuple(values)) for field, values in fields))
