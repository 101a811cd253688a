"""Writes and transfers: lock the names, read what they meet, decide, apply; one transaction a batch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from a2m_episodic import rows as shape
from a2m_episodic.batch import Batch, Bucket, Held
from a2m_episodic.buckets import enter, settle
from a2m_episodic.database import Connection, Database, rows
from a2m_episodic.embedding import WIDTH_LOCK, dimensions, fix_dimensions
from a2m_episodic.locks import lock
from a2m_episodic.queries import query
from a2m_episodic.state import State
from a2m_episodic.terms import Analysis, Text, analyse, text_of
from a2m_protocol.errors import embedding_mismatch
from a2m_protocol.types import Draft
from a2m_server.sequence import with_seq
from a2m_server.values import EVERYONE, Scope, Written

# A batch of fewer characters is analysed at once rather than in a thread.
SMALL = 20_000

_MET = query("write", "met", columns=shape.columns(shape.HELD))
_PUT = query(
    "write",
    "put_record",
    columns=", ".join(f'"{name}"' for name in shape.STORED),
    values=", ".join(f"%({name})s" for name in shape.STORED),
    assignments=", ".join(f'"{name}" = excluded."{name}"' for name in shape.STORED if name != "pk"),
)


class Writer:
    def __init__(self, database: Database, state: State) -> None:
        self._database = database
        self._state = state

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        return await self._run(drafts, scope, transfer=False)

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        return await self._run(drafts, EVERYONE, transfer=True)

    async def _run(self, drafts: Sequence[Draft], scope: Scope, *, transfer: bool) -> list[Written]:
        if not drafts:
            return []
        width = self._width(drafts)
        baked = self._state.baked
        texts = {text_of(draft.content, draft.metadata) for draft in drafts}
        analyses = await _analyses(texts, baked)

        async def work(connection: Connection) -> list[Written]:
            if width is not None:
                await self._fix_width(connection, width)
            batch, numbers = await _prepare(connection, drafts, scope, known=transfer)
            if transfer:
                written = [batch.transfer(draft) for draft in with_seq(drafts, batch.now)]
            else:
                written = [batch.write(draft) for draft in drafts]
            await _apply(connection, batch, numbers, analyses, baked)
            return written

        written = await self._database.transact(work)
        if width is not None:
            self._state.fixed(width)
        return written

    def _width(self, drafts: Sequence[Draft]) -> int | None:
        """The width of the batch's vectors, or None; raises -32008 for two."""
        widths = [len(draft.embedding) for draft in drafts if draft.embedding is not None]
        for width in widths:
            if width != widths[0]:
                raise embedding_mismatch(self._state.dimensions or widths[0], width)
        return widths[0] if widths else None

    async def _fix_width(self, connection: Connection, width: int) -> None:
        await rows(connection, query("embed", "lock_shared"), {"number": WIDTH_LOCK})
        fixed = await dimensions(connection) or await fix_dimensions(connection, width)
        if fixed != width:
            raise embedding_mismatch(fixed, width)


async def _analyses(texts: set[Text], mean: float) -> dict[Text, Analysis]:
    def work() -> dict[Text, Analysis]:
        return {text: analyse(text, mean) for text in texts}

    return work() if sum(len(text.said) for text in texts) < SMALL else await asyncio.to_thread(work)


async def _prepare(
    connection: Connection, drafts: Sequence[Draft], scope: Scope, *, known: bool
) -> tuple[Batch, Mapping[Bucket, int]]:
    """What the drafts meet, locked; and the number of each bucket that they may change.

    An id that was made for the draft just now meets nothing, unless the ids are `known` from elsewhere.
    """
    ids = [draft.id for draft in drafts if draft.chosen or known]
    slots = [slot for draft in drafts if (slot := shape.slot(draft.owner, draft.key)) is not None]
    batch = Batch.over([], [])
    if ids or slots:
        await lock(connection, ids, map(str, slots))
        met = await rows(connection, _MET, {"ids": ids, "slots": slots})
        graves = await rows(connection, query("write", "graves"), {"ids": ids})
        batch = Batch.over(map(shape.held, met), map(shape.tombstone, graves))
    batch.check(drafts, scope)
    entered = await enter(connection, batch.sessions(drafts))
    batch.last = entered.last
    batch.now = entered.now
    return batch, entered.numbers


async def _apply(
    connection: Connection,
    batch: Batch,
    numbers: Mapping[Bucket, int],
    analyses: Mapping[Text, Analysis],
    baked: float,
) -> None:
    created = [batch.held[i] for i in batch.kept if batch.held[i].pk is None]
    changes = Counter(live.bucket for live in created)
    changes.subtract(live.bucket for live in batch.removed)
    for record_id in batch.kept:
        live, before = batch.held[record_id], batch.before.get(record_id)
        if live.pk is not None and before is not None:
            changes[before] -= 1
            changes[live.bucket] += 1
    pks = iter(await rows(connection, query("write", "numbers"), {"count": len(created)}) if created else [])
    kept: list[tuple[Held, Draft]] = []
    for record_id, draft in batch.kept.items():
        live = batch.held[record_id]
        kept.append((live if live.pk is not None else live.numbered(next(pks)["pk"]), draft))
    async with connection.pipeline():
        cursor = connection.cursor()
        if batch.removed:
            removed = [live.pk for live in batch.removed]
            await cursor.execute(query("write", "remove").encode(), {"pks": removed})
        if batch.unburied:
            await cursor.execute(query("write", "unbury").encode(), {"ids": list(batch.unburied)})
        if batch.renewed:
            renewed = [batch.held[i] for i in sorted(batch.renewed)]
            values = {"pks": [r.pk for r in renewed], "etags": [UUID(r.etag) for r in renewed]}
            await cursor.execute(query("write", "renew").encode(), values)
        if kept:
            await _put(connection, kept, numbers, analyses, baked)
        await settle(connection, numbers, changes, batch.last)


async def _put(
    connection: Connection,
    kept: Sequence[tuple[Held, Draft]],
    numbers: Mapping[Bucket, int],
    analyses: Mapping[Text, Analysis],
    baked: float,
) -> None:
    cursor = connection.cursor()
    await cursor.executemany(_PUT.encode(), [shape.stored(h, d, numbers[h.bucket]) for h, d in kept])
    await cursor.executemany(
        query("write", "put_lexical").encode(),
        [shape.lexical(h, d, analyses[text_of(d.content, d.metadata)], baked) for h, d in kept],
    )
    await cursor.executemany(
        query("write", "put_words").encode(),
        [{"pk": h.pk, "marks": analyses[text_of(d.content, d.metadata)].marks} for h, d in kept],
    )
    vectors = [shape.vector(h, d, d.embedding) for h, d in kept if d.embedding is not None]
    if vectors:
        await cursor.executemany(query("write", "put_vector").encode(), vectors)
    bare = [h.pk for h, d in kept if d.embedding is None and h.revision]
    if bare:
        await cursor.execute(query("write", "drop_vectors").encode(), {"pks": bare})
