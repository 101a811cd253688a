"""Vectors of records that are in a searching tier already: in the background, and step by step when asked.

What waits is told by the tiers themselves, which list what has no vector: a router that dies leaves nothing
undone that the next one does not find.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import cast

from a2m_protocol.errors import A2MError, Code, invalid_params, not_supported
from a2m_router.coordination import Locks
from a2m_router.counts import Counts
from a2m_router.listing import PAGE, every_entry
from a2m_router.tiers import Member, Tiers, ask
from a2m_router.vectors import Vectors
from a2m_server.store import SearchingStore
from a2m_server.values import EVERYONE, Embedded, Entry, Filter, Seen

BATCH = 64
STEP = 4.0
"""Seconds after which a step of embedding anew begins no other batch."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
REFUSED = 10_000
"""How many records that the model refuses are remembered, so that they are not tried again each time."""

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
        self._learning = 0.0
        self._tallies: dict[tuple[str, str], Embedded] = {}
        self._refused: OrderedDict[tuple[str, str, str], None] = OrderedDict()
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
        await ask(members, Member.learn)
        width = await self._vectors.width()
        for member in members:
            if not self._vectors.fits(member):
                await self._check_room(member, model, width)
        until = time.monotonic() + STEP
        done = [await self._step(member, model, until) for member in members]
        return Embedded(
            sum(d.embedded for d in done), sum(d.left for d in done), sum(d.refused for d in done)
        )

    async def _look(self) -> bool:
        """Embed all that waits, unless another router is at it; whether nothing was put off."""
        whole = True
        try:
            await self._learn()
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

    async def _learn(self) -> None:
        """Ask the tiers what they are: now and then all, since another router may have changed a width."""
        await self._tiers.learn()
        if time.monotonic() >= self._learning:
            self._learning = time.monotonic() + self._interval
            await ask([member for member in self._tiers.members if member.embeds], Member.learn)

    async def _fill(self, member: Member) -> bool:
        """Embed what has no vector at all; whether nothing is left, as what changes under our hands is."""
        bare = Filter(EVERYONE, without="")
        waiting = self._unseen.labels(member.name)
        after: tuple[int, str] | None = None
        whole = True
        while True:
            page = await member.store.entries(bare, PAGE, after)
            wanted = self._takeable(member, page)
            kept = refused = 0
            for at in range(0, len(wanted), BATCH):
                waiting.set(len(wanted) - kept - refused)
                done = await self._embed(member, wanted[at : at + BATCH])
                kept, refused = kept + done.embedded, refused + done.refused
            left = len(wanted) - kept - refused
            waiting.set(left)
            if not self._vectors.fits(member):
                return True
            if len(page) < PAGE and (not left or not kept):
                return whole and not left
            # What was kept is listed no more; of a page that yielded nothing, go on behind it.
            whole = bool(kept) or (whole and not left)
            after = None if kept else (page[-1].seq, page[-1].id)

    async def _check_room(self, member: Member, model: str, width: int) -> None:
        """Raise -32008 where a tier that has something to embed takes no vectors of our width."""
        for entry in await member.store.entries(Filter(EVERYONE, without=model), 1, None):
            # As the record never was: whatever the answer, nothing changes.
            asked = Seen(entry.id, "", [1.0] + [0.0] * (width - 1), model)
            try:
                await cast("SearchingStore", member.store).embed([asked])
            except A2MError as error:
                if error.code != Code.EMBEDDING_MISMATCH:
                    raise
                raise _other_width(member, error) from error

    async def _step(self, member: Member, model: str, until: float) -> Embedded:
        """Embed some of what lacks a vector of the model; what is left and refused is of the whole tier."""
        lacking = Filter(EVERYONE, without=model)
        key = (member.name, model)
        wanted = await self._first(member, lacking)
        tally = self._tallies.get(key)
        # Others take from what is left, too: the background, a forget.
        if tally is None or tally.left < PAGE or not wanted:
            every = await every_entry(member.store, lacking)
            left = len(self._takeable(member, every))
            tally = Embedded(0, left, len(every) - left)
        kept = refused = at = 0
        while at < len(wanted) and (at == 0 or time.monotonic() < until):
            done = await self._embed(member, wanted[at : at + BATCH], anew=True)
            kept, refused = kept + done.embedded, refused + done.refused
            at += BATCH
        tally = self._tallies[key] = Embedded(kept, tally.left - kept - refused, tally.refused + refused)
        return tally

    async def _first(self, member: Member, selected: Filter) -> list[Entry]:
        """The first of what is listed and not refused, as far as a page goes."""
        after: tuple[int, str] | None = None
        while True:
            page = await member.store.entries(selected, PAGE, after)
            wanted = self._takeable(member, page)
            if wanted or len(page) < PAGE:
                return wanted
            after = (page[-1].seq, page[-1].id)

    def _takeable(self, member: Member, entries: Sequence[Entry]) -> list[Entry]:
        """Without those whose text the model refused."""
        return [e for e in entries if (member.name, e.id, e.etag) not in self._refused]

    async def _embed(self, member: Member, entries: Sequence[Entry], *, anew: bool = False) -> Embedded:
        """How many of a batch have a vector now; what changed meanwhile, or is on the move, has none."""
        ids = [entry.id for entry in entries if entry.arrival is None]
        records = await member.store.read(ids) if ids else []
        seen, refused = await self._vectors.seen(records)
        self._refused |= dict.fromkeys((member.name, record.id, record.etag) for record in refused)
        while len(self._refused) > REFUSED:
            self._refused.popitem(last=False)
        kept = 0
        # An endpoint's width is known only now: another than the tier's is for `reembed` to bring in.
        if seen and (anew or self._vectors.fits(member)):
            kept = sum((await cast("SearchingStore", member.store).embed(seen)).values())
            if member.info is None or member.info.dimensions != len(seen[0].embedding):
                await member.learn()
        return Embedded(kept, len(entries) - kept - len(refused), len(refused))


def _other_width(member: Member, error: A2MError) -> A2MError:
    told = (
        f"nothing was changed: tier {member.name} keeps its width, for it is fixed by its settings or by "
        "vectors of callers (name another tier to leave it out)"
    )
    return A2MError(error.code, f"{told}: {error.message}", error.data)
