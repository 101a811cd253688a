"""Where drafts of a Cluster go: claimed first, conflicts between buckets settled, then written."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from a2m_protocol.clock import SEQ_PER_MS
from a2m_protocol.errors import embedding_mismatch, scope_denied, unavailable
from a2m_protocol.types import Draft
from a2m_server.store import Named, Scope, Written
from a2m_working.claims import Claim, Claims
from a2m_working.database import WHAT, Database
from a2m_working.layout import bucket_tag, tombstone_of
from a2m_working.relocation import Relocation
from a2m_working.root import Held, Place, Root
from a2m_working.rows import draft_arguments

ATTEMPTS = 30
PAUSE = 0.005


@dataclass(frozen=True, slots=True)
class _Claimed:
    draft: Draft
    home: str
    id: Claim
    key: Claim | None


def segments(drafts: Sequence[Draft]) -> Iterator[list[Draft]]:
    """Drafts in order, cut where an id or key comes again for another bucket: that must be written first."""
    segment: list[Draft] = []
    homes: dict[tuple[str | None, ...], str] = {}
    for draft in drafts:
        home = bucket_tag(draft.owner, draft.session)
        names = [("id", draft.id), *([("key", draft.owner, draft.key)] if draft.key is not None else [])]
        if any(homes.get(name, home) != home for name in names):
            yield segment
            segment, homes = [], {}
        segment.append(draft)
        homes |= dict.fromkeys(names, home)
    if segment:
        yield segment


class Placement:
    """Writes drafts that claim no id or key for two buckets."""

    def __init__(
        self, database: Database, claims: Claims, root: Callable[[str], Root], dimensions: int | None
    ) -> None:
        self._database = database
        self._claims = claims
        self._root = root
        self._dimensions = dimensions
        self._relocation = Relocation(claims, root)
        self._last = 0

    async def put(self, drafts: Sequence[Draft], scope: Scope, *, transfer: bool) -> list[Written]:
        """Write in order. A denied id or another width refuses all; else each bucket takes its drafts whole.

        A key that is rewritten from another session cuts the batch: what stands before it is written first.
        """
        width = await self._width(drafts)
        start: int | None = None
        written: dict[int, Written] = {}
        stalled = 0
        while len(written) < len(drafts):
            if stalled > ATTEMPTS:
                raise unavailable(WHAT, "others write the same ids or keys at this moment")
            # Two that take each other's claims must not go on in step.
            await asyncio.sleep(random.uniform(0, PAUSE * stalled))  # noqa: S311 no secret
            pending = [at for at in range(len(drafts)) if at not in written]
            claimed = await self._claim([drafts[at] for at in pending])
            start = start or await self._start(len(drafts))
            before = len(written)
            homes = [await self._settle_id(one, scope, transfer=transfer) for one in claimed]
            if None not in homes:
                placed: dict[str, list[tuple[int, _Claimed]]] = defaultdict(list)
                for at, one, home in zip(pending, claimed, homes, strict=True):
                    where = home
                    if home == one.home and one.key is not None and one.key.tag != home:
                        where = None if placed else await self._settle_key(one, one.key, transfer=transfer)
                    if isinstance(where, Written):
                        written[at] = where
                    elif where is None:
                        break
                    else:
                        placed[where].append((at, one))
                written |= await self._write(placed, scope, start, width, transfer=transfer)
            stalled = stalled + 1 if len(written) == before else 0
        return [written[at] for at in range(len(drafts))]

    async def _claim(self, drafts: Sequence[Draft]) -> list[_Claimed]:
        homes = [bucket_tag(draft.owner, draft.session) for draft in drafts]
        buckets = dict(zip(homes, drafts, strict=True))

        async def register(home: str, draft: Draft) -> None:
            await self._claims.register(home, draft.owner, draft.session)

        async def claim(draft: Draft, home: str) -> _Claimed:
            held = await self._claims.take_id(draft.id, home)
            for alias in draft.aliases:
                await self._claims.take_id(alias, home)
            key = None if draft.key is None else await self._claims.take_key(draft.owner, draft.key, home)
            return _Claimed(draft, home, held, key)

        answers = await self._database.together(
            [
                *(claim(draft, home) for draft, home in zip(drafts, homes, strict=True)),
                *(register(home, draft) for home, draft in buckets.items()),
            ]
        )
        return [answer for answer in answers if answer is not None]

    async def _write(
        self,
        placed: dict[str, list[tuple[int, _Claimed]]],
        scope: Scope,
        start: int,
        width: int | None,
        *,
        transfer: bool,
    ) -> dict[int, Written]:
        async def write(tag: str, group: list[tuple[int, _Claimed]]) -> dict[int, Written]:
            given = [draft_arguments(one.draft, transfer=transfer) for _, one in group]
            places = [
                Place(start + at, one.id.number, one.key.number if one.key else "") for at, one in group
            ]
            answers = await self._root(tag).put_given(
                given, scope, transfer=transfer, places=places, width=width
            )
            pairs = zip(group, answers, strict=True)
            return {at: answer for (at, _), answer in pairs if answer is not None}

        results = await self._database.together(write(tag, group) for tag, group in placed.items())
        return {at: answer for result in results for at, answer in result.items()}

    async def _settle_id(self, one: _Claimed, scope: Scope, *, transfer: bool) -> str | None:
        """The bucket whose script answers a draft, or None to take its claims anew."""
        if one.id.tag == one.home:
            return one.home
        draft, there = one.draft, self._root(one.id.tag)
        found = await there.hold("i", draft.id, draft.owner, one.id.number)
        if isinstance(found, Held):
            if not scope.sees(found.owner):
                raise scope_denied(f"the id {draft.id!r} is taken: choose another")
            rows = await there.read([draft.id], whole=False) if transfer else []
            if not rows or rows[0].fields["moves"] >= draft.moves:
                return one.id.tag
            await there.remove([Named(draft.id, rows[0].etag)], "undo", None, whole=True)
            return None
        stone = tombstone_of(draft.id, found) if found else None
        if stone is not None and stone.reason == "moved" and (not transfer or stone.moves >= draft.moves):
            return one.id.tag
        if stone is not None and stone.reason == "forgotten":
            await self._root(one.home).bury([stone])
        await self._claims.move_id(draft.id, one.id, one.home)
        return None

    async def _settle_key(self, one: _Claimed, key: Claim, *, transfer: bool) -> str | Written | None:
        """The bucket whose script answers a draft, or the answer, or None to take its claims anew."""
        draft = one.draft
        if draft.key is None:
            return one.home
        by_id = await self._root(one.home).hold("i", draft.id, draft.owner)
        if isinstance(by_id, Held) or (by_id and tombstone_of(draft.id, by_id).reason == "moved"):
            return one.home
        found = await self._root(key.tag).hold("k", draft.key, draft.owner, key.number)
        if isinstance(found, Held):
            if transfer:
                return Written(draft.id, "refused", reason="key")
            return await self._relocation.rewrite(draft, found.id, key, one.home)
        await self._claims.move_key(draft.owner, draft.key, key, one.home)
        return None

    async def _width(self, drafts: Sequence[Draft]) -> int | None:
        given = [len(draft.embedding) for draft in drafts if draft.embedding is not None]
        if not given:
            return self._dimensions
        held = self._dimensions or await self._claims.width(None) or given[0]
        for width in given:
            if width != held:
                raise embedding_mismatch(held, width)
        return self._dimensions or await self._claims.width(held)

    async def _start(self, count: int) -> int:
        """The lowest seq of a batch, by one server's clock for all its buckets."""
        seconds, micros = await self._database.command("TIME")
        start = max((int(seconds) * 1000 + int(micros) // 1000) * SEQ_PER_MS, self._last + 1)
        self._last = start + count
        return start
