"""Deletes, tombstones and small changes of records that stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from a2m_episodic import rows as shape
from a2m_episodic.batch import Bucket, Held, outranks, tombstone
from a2m_episodic.buckets import Entered, enter, settle
from a2m_episodic.database import Connection, Database, rows
from a2m_episodic.filters import compile_filter
from a2m_episodic.locks import lock
from a2m_episodic.queries import query
from a2m_server.values import Buried, Deleted, Filter, Forgotten, Judged, Named, Reason, Scope, Tombstone

_HELD = shape.columns(shape.HELD)


class Remover:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def forget(self, selected: Filter) -> Forgotten:
        found = compile_filter(selected)

        async def work(connection: Connection) -> Forgotten:
            wanted = await rows(connection, query("write", "selected", filter=found.all), found.values)
            if not wanted:
                return Forgotten([])
            await lock(connection, [row["id"] for row in wanted])
            sql = query("write", "still_selected", columns=_HELD, filter=found.all)
            pks = [row["pk"] for row in wanted]
            live = list(map(shape.held, await rows(connection, sql, {**found.values, "pks": pks})))
            entered = await enter(connection, {row.bucket for row in live})
            graves = [tombstone(row, "forgotten", entered.now, None) for row in live]
            await _remove(connection, live, graves, entered)
            live.sort(key=lambda row: (row.seq, row.id))
            return Forgotten([row.id for row in live], owners={row.id: row.owner for row in live})

        return await self._database.transact(work)

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        etags = {name.id: name.etag for name in named}

        async def work(connection: Connection) -> dict[str, Deleted]:
            live, graves = await _named(connection, list(etags))
            outcomes: dict[str, Deleted] = {
                i: _standing(etag, live.get(i), graves.get(i)) for i, etag in etags.items()
            }
            if set(outcomes.values()) == {"deleted"}:
                entered = await enter(connection, {row.bucket for row in live.values()})
                left: list[Tombstone] = []
                if reason != "undo":
                    left = [tombstone(row, reason, entered.now, target) for row in live.values()]
                marked = {row.bucket for row in live.values()} if reason == "moved" else set[Bucket]()
                await _remove(connection, list(live.values()), left, entered, marked)
            return outcomes

        return await self._database.transact(work)

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        async def work(connection: Connection) -> dict[str, Buried]:
            live, graves = await _named(connection, [grave.id for grave in tombstones])
            marked = {(g.owner, g.session) for g in tombstones if g.reason == "moved"}
            outcomes: dict[str, Buried] = {}
            removed: list[Held] = []
            put: dict[str, Tombstone] = {}
            for grave in tombstones:
                row = live.get(grave.id)
                if row is not None and (grave.reason == "moved" or row.seq > grave.seq):
                    outcomes[grave.id] = "live"
                    continue
                if row is not None:
                    removed.append(live.pop(grave.id))
                if outranks(grave, graves.get(grave.id)):
                    graves[grave.id] = put[grave.id] = grave
                forgotten = row is not None or graves[grave.id].reason != grave.reason
                outcomes[grave.id] = "forgotten" if forgotten else "absent"
            buckets = {row.bucket for row in removed} | marked
            entered = await enter(connection, buckets)
            await _remove(connection, removed, list(put.values()), entered, marked)
            return outcomes

        return await self._database.transact(work)

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        async with self._database.connection() as connection:
            found = await rows(connection, query("write", "graves"), {"ids": list(ids)})
        graves = {row["id"]: shape.tombstone(row) for row in found}
        return [graves[i] for i in dict.fromkeys(ids) if i in graves]

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        found = compile_filter(Filter(scope, ids=tuple(ids)))
        async with self._database.connection() as connection:
            sql = query("write", "reinforce", filter=found.all)
            return len(await rows(connection, sql, {**found.values, "amount": amount}))

    async def touch(self, ids: Sequence[str], at: str) -> None:
        times = Counter(ids)
        values = {"ids": list(times), "times": list(times.values()), "at": at}
        async with self._database.connection() as connection:
            await connection.execute(query("write", "touch").encode(), values)

    async def settle(self, named: Sequence[Named]) -> None:
        etags = {name.id: name.etag for name in named}
        values = {"ids": list(etags), "etags": list(etags.values())}
        async with self._database.connection() as connection:
            await connection.execute(query("write", "settle").encode(), values)

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        values = {
            "ids": [one.id for one in judged],
            "etags": [one.etag for one in judged],
            "statuses": [one.status for one in judged],
            "approvals": [one.approved for one in judged],
        }
        async with self._database.connection() as connection:
            done = {row["id"] for row in await rows(connection, query("write", "judge"), values)}
        return {one.id: one.id in done for one in judged}


def _standing(etag: str, row: Held | None, grave: Tombstone | None) -> Deleted:
    if row is not None:
        return "deleted" if row.etag == etag else "changed"
    return grave.reason if grave is not None else "absent"


async def _named(connection: Connection, ids: Sequence[str]) -> tuple[dict[str, Held], dict[str, Tombstone]]:
    """The records and tombstones of ids, which stay as they are until the transaction ends."""
    await lock(connection, ids)
    values = {"ids": list(ids)}
    live = await rows(connection, query("write", "named", columns=_HELD), values)
    graves = await rows(connection, query("write", "graves"), values)
    return {row["id"]: shape.held(row) for row in live}, {row["id"]: shape.tombstone(row) for row in graves}


async def _remove(
    connection: Connection,
    live: Sequence[Held],
    graves: Iterable[Tombstone],
    entered: Entered,
    marked: Iterable[Bucket] = (),
) -> None:
    """Delete records, put tombstones, count their buckets and mark those that have records elsewhere."""
    changes: Mapping[Bucket, int] = Counter(row.bucket for row in live)
    async with connection.pipeline():
        if live:
            await connection.execute(query("write", "remove").encode(), {"pks": [row.pk for row in live]})
        put = [shape.buried(grave) for grave in graves]
        if put:
            await connection.cursor().executemany(query("write", "bury").encode(), put)
        await settle(
            connection,
            entered.numbers,
            {bucket: -count for bucket, count in changes.items()},
            {},
            frozenset(marked),
        )
