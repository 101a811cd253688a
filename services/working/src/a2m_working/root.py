"""Buckets that share an index: every call is one script, atomic, in one round trip."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from a2m_protocol.types import Draft
from a2m_server.values import Buried, Deleted, Judged, Named, Reason, Scope, SessionInfo, Tombstone, Written
from a2m_working.buckets import PAGE_BYTES, BucketPage, Request
from a2m_working.database import Argument, Database, by_name
from a2m_working.layout import DAY_MS, bucket_tag, decode, encode, tombstone_of, tombstone_text, visibility
from a2m_working.listing import forgotten, pairs
from a2m_working.results import page_of, refusal_of, session_of, written_of
from a2m_working.rows import Row, draft_arguments, judged_text, row_of
from a2m_working.settings import WorkingSettings

STEP = 256


@dataclass(frozen=True, slots=True)
class Held:
    """The record that an id or key leads to, and whose it is."""

    id: str
    owner: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """What a Cluster tells a script of a draft: the lowest seq it may get and the numbers of its claims."""

    seq: int | None = None
    claim: str = ""
    key_claim: str = ""


class Root:
    """`Buckets` that share an index, and so a server: every call is one script, atomic, in one round trip.

    One server has one root for all. On a Cluster each bucket, `here`, is a root of its own in its slot.
    """

    def __init__(self, database: Database, settings: WorkingSettings, here: str = "") -> None:
        self._database = database
        self._prefix = settings.prefix
        self._root = f"{settings.prefix}{{{here}}}:" if here else settings.prefix
        self._here = here
        self._grave_ms = int(settings.tombstone_days * DAY_MS)
        self._dimensions = settings.dimensions

    async def put(self, drafts: Sequence[Draft], scope: Scope, *, transfer: bool) -> list[Written]:
        given = [draft_arguments(draft, transfer=transfer) for draft in drafts]
        answers = await self.put_given(given, scope, transfer=transfer)
        return [answer for answer in answers if answer is not None]

    async def put_given(
        self,
        given: Sequence[Sequence[Argument]],
        scope: Scope,
        *,
        transfer: bool,
        places: Sequence[Place] | None = None,
        width: int | None = None,
    ) -> list[Written | None]:
        """`put` of drafts as scripts take them; None where, on a Cluster, a claim has to be taken anew."""
        arguments: list[Argument] = [visibility(scope), width or self._dimensions or "", self._here]
        for draft, place in zip(given, places or [Place()] * len(given), strict=True):
            seq = "" if place.seq is None else place.seq
            arguments += [*draft, seq, place.claim, place.key_claim]
        answer = await self._write("transfer" if transfer else "write", arguments)
        refusal = refusal_of(answer)
        if refusal is not None:
            raise refusal
        return [written_of(parts) for parts in answer[1:]]

    async def remove(
        self, named: Sequence[Named], reason: Reason, target: str | None, *, whole: bool
    ) -> dict[str, Deleted]:
        return await self._remove(named, reason, target, "all" if whole else "each")

    async def check(self, named: Sequence[Named]) -> dict[str, Deleted]:
        """What `remove` would answer."""
        return await self._remove(named, "undo", None, "check")

    async def sweep(self, rows: Sequence[Row]) -> list[Row]:
        return list(rows)

    async def settle(self, named: Sequence[Named]) -> None:
        arguments: list[Argument] = []
        for name in named:
            arguments += [name.id, name.etag]
        await self._write("settle", arguments)

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        rows = {row.id: row for row in await self.read([one.id for one in judged], whole=False)}
        arguments: list[Argument] = []
        for one in judged:
            row = rows.get(one.id)
            text = "" if row is None or one.approved is None else judged_text(row, one)
            arguments += [one.id, one.etag, one.status, text]
        answer = await self._write("judge", arguments)
        return {one.id: done == b"1" for one, done in zip(judged, answer, strict=True)}

    async def arrivals(self) -> AsyncIterator[list[str]]:
        async for ids in by_name(self._database, self._root + "n", STEP):
            yield ids

    async def bury(self, stones: Sequence[Tombstone]) -> dict[str, Buried]:
        arguments: list[Argument] = []
        for stone in stones:
            tag = bucket_tag(stone.owner, stone.session)
            # Another bucket of a Cluster marks the session.
            arguments += [stone.id, tag if self._here in ("", tag) else "", tombstone_text(stone)]
        answer = await self._write("bury", arguments)
        return {s.id: cast("Buried", outcome.decode()) for s, outcome in zip(stones, answer, strict=True)}

    async def unbury(self, ids: Sequence[str]) -> None:
        """Drop the tombstones of ids that belong to another bucket now."""
        if ids:
            await self._database.command("DEL", *(f"{self._root}t:{i}" for i in ids))

    async def mark(self, stone: Tombstone) -> None:
        """Mark the session of a `moved` tombstone that lies in another bucket."""
        await self._write("bury", ["", self._here, tombstone_text(stone)])

    async def hold(self, kind: str, name: str, owner: str | None, number: str = "") -> Held | bytes:
        """Who holds an id ("i") or key ("k") here, else its tombstone, if any, as text.

        With the `number` of a claim, writers that hold that claim or an earlier one are turned away.
        """
        answer = await self._write("fence", [kind, name, encode(owner), number])
        if answer[0] == b"held":
            return Held(answer[1].decode(), decode(answer[2]))
        return answer[1]

    async def count(
        self, ids: Counter[str], scope: Scope, *, amount: float | None = None, at: str | None = None
    ) -> int:
        arguments: list[Argument] = [visibility(scope), "" if amount is None else repr(amount), at or ""]
        for record_id, times in ids.items():
            arguments += [record_id, times]
        return int(await self._write("count", arguments))

    async def read(self, ids: Sequence[str], *, whole: bool) -> list[Row]:
        return [row_of(parts) for parts in await self._read("read", [int(whole), *ids])]

    async def fetch(self, key: str, owners: Sequence[str | None], *, others: bool, whole: bool) -> list[Row]:
        arguments: list[Argument] = [int(whole), key, int(others), *map(encode, owners)]
        return [row_of(parts) for parts in await self._read("fetch", arguments)]

    async def pages(self, requests: Sequence[Request], *, newest: bool, whole: bool) -> list[BucketPage]:
        arguments: list[Argument] = [int(whole), "newest" if newest else "oldest", PAGE_BYTES]
        for request in requests:
            named = ("bucket", request.tag) if request.tag is not None else ("session", request.session or "")
            arguments += [*named, request.count, *(request.after or ("", ""))]
        return [page_of(parts) for parts in await self._read("page", arguments)]

    async def places(
        self, tags: Sequence[str], limit: int, after: tuple[int, str] | None, highest: int | None
    ) -> list[tuple[int, str]]:
        most = "+inf" if highest is None else highest
        return pairs(await self._read("outline", [limit, *(after or ("", "")), most, *tags]))

    async def weigh(self, tags: Sequence[str]) -> int:
        return int(await self._read("weigh", list(tags)))

    async def tags(self, owner: str | None, size: int) -> AsyncIterator[list[str]]:
        async for listed in self._registry(owner, size, tags_alone=True):
            yield [tag.decode() for tag in listed]

    async def sessions(self, owners: Sequence[str | None] | None) -> list[SessionInfo]:
        found: list[SessionInfo] = []
        for owner in [None] if owners is None else [encode(owner) for owner in owners]:
            async for listed in self._registry(owner, STEP, tags_alone=False):
                found += [info for info in map(session_of, listed) if info is not None]
        return found

    async def total(self, owners: Sequence[str | None] | None) -> int:
        fields = [""] if owners is None else [encode(owner) for owner in owners]
        if not fields:
            return 0
        return sum(int(n or 0) for n in await self._database.command("HMGET", self._root + "o", *fields))

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        if not ids:
            return []
        texts = await self._database.command("MGET", *(f"{self._root}t:{i}" for i in ids))
        return [tombstone_of(i, text) for i, text in zip(ids, texts, strict=True) if text is not None]

    async def forgotten(self, limit: int, after: tuple[int, str] | None) -> list[tuple[int, str]]:
        return await forgotten(self._database, self._root + "g", self._grave_ms, limit, after)

    async def width(self) -> int | None:
        if self._dimensions is not None:
            return self._dimensions
        stored = await self._database.command("GET", self._root + "w")
        return int(stored) if stored and await self.total(None) else None

    async def _remove(
        self, named: Sequence[Named], reason: Reason, target: str | None, mode: str
    ) -> dict[str, Deleted]:
        wanted = {name.id: name.etag for name in named}
        arguments: list[Argument] = [reason, encode(target), mode]
        for record_id, etag in wanted.items():
            arguments += [record_id, etag]
        answer = await self._write("remove", arguments)
        return {i: cast("Deleted", outcome.decode()) for i, outcome in zip(wanted, answer, strict=True)}

    async def _registry(self, owner: str | None, size: int, *, tags_alone: bool) -> AsyncIterator[list[Any]]:
        last = b""
        while True:
            arguments = [owner or "", last, size, int(tags_alone)]
            last, *listed = await self._read("sessions", arguments)
            if listed:
                yield listed
            if not last:
                return

    async def _read(self, script: str, arguments: Sequence[Argument]) -> Any:
        return await self._database.read(script, self._key, [self._prefix, self._root, *arguments])

    async def _write(self, script: str, arguments: Sequence[Argument]) -> Any:
        word = secrets.token_hex(6)
        header: list[Argument] = [self._prefix, self._root, word, self._grave_ms]
        return await self._database.write(script, self._key, [*header, *arguments])

    @property
    def _key(self) -> str:
        # Any key of the slot: scripts name the others themselves.
        return self._root + "o"
