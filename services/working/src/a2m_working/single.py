"""Buckets on one server, or a primary with replicas: every call is one script, atomic, in one round trip."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from a2m_protocol.types import Draft
from a2m_server.store import Buried, Deleted, Named, Reason, Scope, SessionInfo, Tombstone, Written
from a2m_working.buckets import PAGE_BYTES, BucketPage, Request
from a2m_working.database import Argument, Database
from a2m_working.layout import bucket_tag, encode, tombstone_of, tombstone_text, visibility
from a2m_working.results import page_of, refusal_of, session_of, written_of
from a2m_working.rows import Row, draft_arguments, row_of

_SESSIONS = 256


class SingleServer:
    """`Buckets` with one index for all of them."""

    def __init__(self, database: Database, prefix: str, grave_ms: int, dimensions: int | None) -> None:
        self._database = database
        self._prefix = prefix
        self._grave_ms = grave_ms
        self._dimensions = dimensions

    async def put(self, drafts: Sequence[Draft], scope: Scope, *, transfer: bool) -> list[Written]:
        arguments: list[Argument] = [visibility(scope), self._dimensions or ""]
        for draft in drafts:
            arguments += draft_arguments(draft, transfer=transfer)
        answer = await self._write("transfer" if transfer else "write", arguments)
        refusal = refusal_of(answer)
        if refusal is not None:
            raise refusal
        return [written_of(parts) for parts in answer[1:]]

    async def remove(
        self, named: Sequence[Named], reason: Reason, target: str | None, *, whole: bool
    ) -> dict[str, Deleted]:
        wanted = {name.id: name.etag for name in named}
        arguments: list[Argument] = [reason, encode(target), "all" if whole else "each"]
        for record_id, etag in wanted.items():
            arguments += [record_id, etag]
        answer = await self._write("remove", arguments)
        return {i: cast("Deleted", outcome.decode()) for i, outcome in zip(wanted, answer, strict=True)}

    async def bury(self, stones: Sequence[Tombstone]) -> dict[str, Buried]:
        arguments: list[Argument] = []
        for stone in stones:
            arguments += [stone.id, bucket_tag(stone.owner, stone.session), tombstone_text(stone)]
        answer = await self._write("bury", arguments)
        return {s.id: cast("Buried", outcome.decode()) for s, outcome in zip(stones, answer, strict=True)}

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

    async def tags(self, owner: str | None, size: int) -> AsyncIterator[list[str]]:
        async for listed in self._registry(owner, size, tags_alone=True):
            yield [tag.decode() for tag in listed]

    async def sessions(self, owners: Sequence[str | None] | None) -> list[SessionInfo]:
        found: list[SessionInfo] = []
        for owner in [None] if owners is None else [encode(owner) for owner in owners]:
            async for listed in self._registry(owner, _SESSIONS, tags_alone=False):
                found += [info for info in map(session_of, listed) if info is not None]
        return found

    async def total(self, owners: Sequence[str | None] | None) -> int:
        fields = [""] if owners is None else [encode(owner) for owner in owners]
        if not fields:
            return 0
        return sum(int(n or 0) for n in await self._database.command("HMGET", self._prefix + "o", *fields))

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        if not ids:
            return []
        texts = await self._database.command("MGET", *(f"{self._prefix}t:{i}" for i in ids))
        return [tombstone_of(i, text) for i, text in zip(ids, texts, strict=True) if text is not None]

    async def width(self) -> int | None:
        stored = await self._database.command("GET", self._prefix + "w")
        return self._dimensions or (int(stored) if stored else None)

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
        return await self._database.read(script, self._prefix + "o", [self._prefix, self._prefix, *arguments])

    async def _write(self, script: str, arguments: Sequence[Argument]) -> Any:
        word = secrets.token_hex(6)
        header: list[Argument] = [self._prefix, self._prefix, word, self._grave_ms, 0]
        return await self._database.write(script, self._prefix + "o", [*header, *arguments])
