"""Where drafts of a Cluster go: claimed first, conflicts between buckets settled, then written."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from a2m_protocol.errors import embedding_mismatch, scope_denied, unavailable
from a2m_protocol.types import Draft
from a2m_server.values import Named, Scope, Written
from a2m_working.claims import Claim, Claims
from a2m_working.database import WHAT, Database
from a2m_working.layout import bucket_tag, tombstone_of
from a2m_working.relocation import Relocation
from a2m_working.root import Held, Place, Root
from a2m_working.rows import draft_arguments

ATTEMPTS = 30
PAUSE = 0.005
HELD = "held"


@dataclass(frozen=True, slots=True)
class _Claimed:
    draft: Draft
    home: str
    id: Claim
    key: Claim | None
    where: str
    """The bucket whose script answers."""
    displaces: bool = False
    """Whether an older version lives in the bucket that `id` names."""

    @property
    def relocates(self) -> bool:
        return self.displaces or (
            self.where == self.home and self.key is not None and self.key.tag != self.home
        )


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
            settled = [await self._settle_id(one, scope, transfer=transfer) for one in claimed]
            if None not in settled:
                placed: dict[str, list[tuple[int, _Claimed]]] = defaultdict(list)
                for at, one in zip(pending, settled, strict=True):
                    answer: _Claimed | Written | None = one
                    if one is not None and one.relocates:
                        # In its turn: what stands before it is written first.
                        answer = None if placed else await self._relocate(one, transfer=transfer)
                    if isinstance(answer, _Claimed):
                        placed[answer.where].append((at, answer))
                        continue
                    # A relocation changed what the claims of those after it say.
                    if answer is not None:
                        written[at] = answer
                    break
                written |= await self._write(placed, scope, start, width, transfer=transfer)
            stalled = stalled + 1 if len(written) == before else 0
        return [written[at] for at in range(len(drafts))]

    async def check(self, drafts: Sequence[Draft], scope: Scope) -> None:
        """Raise for an id of an owner that the caller does not see."""
        if scope.readable is None:
            return
        claims = await self._claims.ids([draft.id for draft in drafts])
        for draft in drafts:
            claim = claims.get(draft.id)
            found = b"" if claim is None else await self._root(claim.tag).hold("i", draft.id, draft.owner)
            _check_seen(draft, found, scope)

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
            return _Claimed(draft, home, held, key, home)

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

    async def _settle_id(self, one: _Claimed, scope: Scope, *, transfer: bool) -> _Claimed | None:
        """The draft with the bucket that answers it, or None to take its claims anew."""
        if one.id.tag == one.home:
            return one
        draft, there = one.draft, self._root(one.id.tag)
        found = await there.hold("i", draft.id, draft.owner, one.id.number)
        _check_seen(draft, found, scope)
        if isinstance(found, Held):
            rows = await there.read([draft.id], whole=False) if transfer else []
            if rows and rows[0].fields["moves"] < draft.moves and rows[0].fields["seq"] <= (draft.seq or 0):
                return replace(one, displaces=True)
            return replace(one, where=one.id.tag)
        stone = tombstone_of(draft.id, found) if found else None
        if stone is not None and stone.reason == "moved" and (not transfer or stone.moves >= draft.moves):
            return replace(one, where=one.id.tag)
        if stone is not None and stone.reason == "forgotten":
            await self._root(one.home).bury([stone])
        if await self._claims.move_id(draft.id, one.id, one.home):
            await there.unbury([draft.id])
        return None

    async def _relocate(self, one: _Claimed, *, transfer: bool) -> _Claimed | Written | None:
        """What its bucket's script is to answer, or the answer, or None to take the draft's claims anew."""
        draft, key = one.draft, one.key
        if not transfer:
            by_id = await self._root(one.home).hold("i", draft.id, draft.owner)
            if isinstance(by_id, Held) or (by_id and tombstone_of(draft.id, by_id).reason == "moved"):
                return one
        if key is not None and draft.key is not None and key.tag != one.home:
            found = await self._root(key.tag).hold("k", draft.key, draft.owner, key.number)
            if not isinstance(found, Held):
                await self._claims.move_key(draft.owner, draft.key, key, one.home)
                return None
            if not transfer:
                return await self._relocation.rewrite(draft, found.id, key, one.home)
            if found.id != draft.id:
                where = one.id.tag if one.displaces else one.home
                return replace(one, where=where, key=Claim(key.tag, HELD))
            if not one.displaces:
                # Left by a crash: the claim of its id says that the record is elsewhere.
                await self._root(key.tag).remove([Named(draft.id, "")], "undo", None, whole=True)
                return None
        return await self._relocation.adopt(draft, one.id, key, one.home)

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
        start = max(int(seconds) * 1_000_000 + int(micros), self._last + 1)
        self._last = start + count
        return start


def _check_seen(draft: Draft, found: Held | bytes, scope: Scope) -> None:
    """Raise -32005 where an id is of a record, held or moved, of an owner whom the caller does not see."""
    if isinstance(found, Held):
        seen = scope.sees(found.owner)
    else:
        stone = tombstone_of(draft.id, found) if found else None
        seen = stone is None or stone.reason != "moved" or scope.sees(stone.owner)
    if not seen:
        raise scope_denied(f"the id {draft.id!r} is taken: choose another")
