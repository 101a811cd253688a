"""Vectors of records that are in a searching tier already: in the background, and step by step when asked.

What waits is told by the tiers themselves, which list what has no vector: a router that dies leaves nothing
undone that the next one does not find.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import cast

from a2m_protocol.errors import A2MError, Code, invalid_params, not_supported
from a2m_router.coordination import Locks
from a2m_router.counts import Counts
from a2m_router.listing import PAGE, every_entry
from a2m_router.tiers import Member, Tiers
from a2m_router.vectors import Vectors
from a2m_server.store import EVERYONE, Embedded, Entry, Filter, SearchingStore

BATCH = 64
STEP = 4.0
"""Seconds after which a step of embedding anew begins no other batch."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0

log = logging.getLogger(__name__)


class Embedding:
    """Finds records without vectors and has them embedded; `interval` is the pause between two looks.

    `wake` is for the path of a turn: it only says that there may be something to do.
    """

    def __init__(
        self, tiers: Tiers, vectors: Vectors, *, locks: Locks, counts: Counts, interval: float
    ) -> None:
        self._tiers = tiers
        self._vectors = vectors
        self._locks = locks
        self._unseen = counts.unseen
        self._interval = interval
        self._wake = asyncio.Event()
        self._left: dict[tuple[str, str], int] = {}
        vectors.missed = self.wake

    @property
    def extensions(self) -> frozenset[str]:
        return frozenset() if self._vectors.model is None else frozenset({"reembed"})

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Embed what waits at once, when woken and now and then, until cancelled."""
        pause = FIRST_PAUSE
        while self._vectors.model is not None:
            self._wake.clear()
            if await self._look():
                pause = FIRST_PAUSE
                try:
                    async with asyncio.timeout(self._interval):
                        await self._wake.wait()
                except TimeoutError:
                    pass
            else:
                # Whatever wakes it meanwhile: what is put off waits.
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def reembed(self, tier: str | None) -> Embedded:
        """A step of `EmbeddingStore.reembed`."""
        model = self._vectors.model
        if model is None:
            raise not_supported(
                "this federation makes no vectors: give it a model (A2M_ROUTER_EMBEDDING__KIND)"
            )
        await self._tiers.learn()
        if tier is not None and not self._tiers.get(tier).embeds:
            raise invalid_params(f"tier {tier} does not keep vectors that are made by a federation")
        members = [m for m in self._tiers.members if (m.embeds if tier is None else m.name == tier)]
        until = time.monotonic() + STEP
        embedded, left = 0, 0
        refused: A2MError | None = None
        for member in members:
            try:
                done = await self._step(member, model, until)
            except A2MError as error:
                if error.code != Code.EMBEDDING_MISMATCH:
                    raise
                refused = _other_width(member, error)
                continue
            embedded, left = embedded + done.embedded, left + done.left
        if refused is not None and not embedded:
            raise refused
        return Embedded(embedded, left)

    async def _look(self) -> bool:
        """Embed all that waits, unless another router is at it; whether nothing was put off."""
        whole = True
        try:
            async with self._locks.alone("embedding") as alone:
                if not alone:
                    return False
                for member in self._tiers.members:
                    if member.embeds and self._vectors.fits(member):
                        try:
                            whole = await self._fill(member) and whole
                        except A2MError as error:
                            log.warning("records in %s wait for vectors: %s", member.name, error.message)
                            whole = False
        except A2MError as error:
            log.warning("records wait for vectors: %s", error.message)
            whole = False
        except Exception:
            # An outermost loop: the next look must come.
            log.exception("records could not be given vectors")
            whole = False
        return whole

    async def _fill(self, member: Member) -> bool:
        """Embed what has no vector at all; whether nothing is left, as what changes under our hands is."""
        bare = Filter(EVERYONE, without="")
        waiting = self._unseen.labels(member.name)
        after: tuple[int, str] | None = None
        while True:
            page = await member.store.entries(bare, PAGE, after)
            kept = 0
            for at in range(0, len(page), BATCH):
                waiting.set(len(page) - kept)
                kept += await self._embed(member, page[at : at + BATCH])
            waiting.set(len(page) - kept)
            if not self._vectors.fits(member):
                return True
            if len(page) < PAGE and (kept == len(page) or not kept):
                return after is None and kept == len(page)
            # What was kept is listed no more; of a page that yielded nothing, go on behind it.
            after = None if kept else (page[-1].seq, page[-1].id)

    async def _step(self, member: Member, model: str, until: float) -> Embedded:
        lacking = Filter(EVERYONE, without=model)
        key = (member.name, model)
        page = await member.store.entries(lacking, PAGE, None)
        if len(page) < PAGE:
            self._left[key] = len(page)
        elif self._left.get(key, 0) < PAGE:
            self._left[key] = len(await every_entry(member.store, lacking))
        kept = at = 0
        while at < len(page) and (at == 0 or time.monotonic() < until):
            kept += await self._embed(member, page[at : at + BATCH], anew=True)
            at += BATCH
        self._left[key] -= kept
        return Embedded(kept, self._left[key])

    async def _embed(self, member: Member, entries: Sequence[Entry], *, anew: bool = False) -> int:
        """How many of a batch have a vector now; what changed meanwhile, or is on the move, has none."""
        ids = [entry.id for entry in entries if entry.arrival is None]
        records = await member.store.read(ids) if ids else []
        seen = await self._vectors.seen(records)
        # An endpoint's width is known only now: another than the tier's is for `reembed` to bring in.
        if not seen or not (anew or self._vectors.fits(member)):
            return 0
        outcomes = await cast("SearchingStore", member.store).embed(seen)
        if member.info is None or member.info.dimensions != len(seen[0].embedding):
            await member.learn()
        return sum(outcomes.values())


def _other_width(member: Member, error: A2MError) -> A2MError:
    told = f"tier {member.name} keeps its width, for it is fixed by its settings or by vectors of callers"
    return A2MError(error.code, f"{told}: {error.message}", error.data)
