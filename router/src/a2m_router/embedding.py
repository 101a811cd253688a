"""Vectors of records that are in a searching tier already: in the background, and step by step when asked.

What waits is told by the tiers themselves, which list what has no vector: a router that dies leaves nothing
undone that the next one does not find.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

from a2m_protocol.errors import A2MError, Code, not_supported
from a2m_router.coordination import Locks
from a2m_router.counts import Counts
from a2m_router.listing import PAGE, every_entry
from a2m_router.tiers import Member, Tiers, ask
from a2m_router.vectors import Vectors
from a2m_server.store import SearchingStore
from a2m_server.values import EVERYONE, Due, Embedded, Entry, Filter, Seen

LOCK = "embedding"
"""What who embeds holds meanwhile: the background and whoever embeds anew, of all routers, take turns."""
BATCH = 64
STEP = 4.0
"""Seconds after which whoever embeds begins no other batch before it is somebody else's turn."""
LONGEST_WAIT = 30.0
"""Seconds that a step of embedding anew waits for its turn."""
LOOKED_AT = 8
"""How many records are read to tell what has another model's vector from what was written just now."""
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
        self._due: dict[str, str] = {}
        self._tallies: dict[tuple[str, str], Embedded] = {}
        self._refused: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        vectors.missed = self.wake

    @property
    def extensions(self) -> frozenset[str]:
        return frozenset() if self._vectors.model is None else frozenset({"reembed"})

    @property
    def due(self) -> tuple[Due, ...]:
        """The tiers that only `reembed` brings vectors of the model, as of the last look."""
        names = [member.name for member in self._tiers.members if member.name in self._due]
        return tuple(Due(name, self._due[name]) for name in names)

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
        named = self._tiers.members if tier is None else [self._tiers.get(tier)]
        members = self._tiers.embedding(tier, named)
        await ask(members, Member.learn)
        width = await self._vectors.width()
        for member in members:
            if not self._vectors.fits(member):
                await self._check_room(member, model, width)
        async with self._turn() as ours:
            until = time.monotonic() + STEP if ours else None
            done = [await self._step(member, model, until) for member in members]
        for member, step in zip(members, done, strict=True):
            if not step.left:
                self._due.pop(member.name, None)
        return Embedded(
            sum(d.embedded for d in done), sum(d.left for d in done), sum(d.refused for d in done)
        )

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[bool]:
        """Hold the lock, and wait for it a while; yields whether it is held."""
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(LONGEST_WAIT):
                    await held.enter_async_context(self._locks.hold([LOCK]))
                ours = True
            except TimeoutError:
                ours = False
            yield ours

    async def _look(self) -> bool:
        """Embed all that waits, unless somebody else is at it; whether nothing was put off."""
        whole = True
        try:
            thorough = await self._learn()
            for member in self._tiers.members:
                if not member.embeds:
                    continue
                try:
                    if self._vectors.fits(member):
                        whole = await self._fill(member) and whole
                    if thorough:
                        whole = await self._survey(member) and whole
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

    async def _learn(self) -> bool:
        """Ask the tiers what they are: now and then all, since another router may have changed a width.

        Whether it is such a time.
        """
        await self._tiers.learn()
        if time.monotonic() < self._learning:
            return False
        self._learning = time.monotonic() + self._interval
        await ask([member for member in self._tiers.members if member.embeds], Member.learn)
        return True

    async def _fill(self, member: Member) -> bool:
        """Embed what has no vector at all; whether nothing is left, as what changes under our hands is."""
        after: tuple[int, str] | None = None
        whole = True
        while True:
            async with self._locks.alone(LOCK) as alone:
                if not alone:
                    return False
                page = await member.store.entries(BARE, PAGE, after)
                kept, left = await self._fill_from(member, page)
            if not self._vectors.fits(member):
                return True
            if len(page) < PAGE and (not left or not kept):
                return whole and not left
            # What was kept is listed no more; of a page that yielded nothing, go on behind it.
            whole = bool(kept) or (whole and not left)
            after = None if kept else (page[-1].seq, page[-1].id)

    async def _fill_from(self, member: Member, page: Sequence[Entry]) -> tuple[int, int]:
        """Embed what is listed, as far as time allows: how many have a vector now, and how many wait."""
        waiting = self._unseen.labels(member.name)
        wanted = self._takeable(member, page)
        until = time.monotonic() + STEP
        kept = refused = at = 0
        while at < len(wanted) and (not kept or time.monotonic() < until):
            waiting.set(len(wanted) - kept - refused)
            done = await self._embed(member, wanted[at : at + BATCH])
            kept, refused = kept + done.embedded, refused + done.refused
            at += BATCH
        left = len(wanted) - kept - refused
        waiting.set(left)
        return kept, left

    async def _survey(self, member: Member) -> bool:
        """Find out whether `reembed` is due in a tier; whether there was nothing else to do.

        A width that nothing holds any more, since all that was of it was forgotten, is changed at once.
        """
        model = self._vectors.model or ""
        lacking = self._takeable(member, await member.store.entries(_lacking(model), PAGE, None))
        bare = await member.store.entries(BARE, PAGE, None) if lacking else []
        known = {entry.id for entry in bare}
        others = [entry.id for entry in lacking if entry.id not in known]
        fits = self._vectors.fits(member)
        # What was written between the two lists is in the first alone.
        if others and any(r.embedding is not None for r in await member.store.read(others[:LOOKED_AT])):
            self._due[member.name] = _other_model(model) if fits else self._width_told(member, model)
        elif fits or not lacking:
            self._due.pop(member.name, None)
        elif not others and len(bare) < PAGE:
            return await self._take_over(member, model)
        else:
            self._due[member.name] = self._width_told(member, model)
        return True

    async def _take_over(self, member: Member, model: str) -> bool:
        """Bring our width into a tier that has no vector of another model; whether nothing else waits."""
        async with self._turn() as ours:
            if not ours:
                return False
            try:
                await self._check_room(member, model, await self._vectors.width())
            except A2MError as error:
                if error.code != Code.EMBEDDING_MISMATCH:
                    raise
                self._due[member.name] = self._width_told(member, model)
                return True
            await self._step(member, model, time.monotonic())
        self._due.pop(member.name, None)
        return not self._vectors.fits(member) or await self._fill(member)

    async def _check_room(self, member: Member, model: str, width: int) -> None:
        """Raise -32008 where a tier that has something to embed takes no vectors of our width."""
        for entry in await member.store.entries(_lacking(model), 1, None):
            # As the record never was: whatever the answer, nothing changes.
            asked = Seen(entry.id, "", [1.0] + [0.0] * (width - 1), model)
            try:
                await cast("SearchingStore", member.store).embed([asked])
            except A2MError as error:
                if error.code != Code.EMBEDDING_MISMATCH:
                    raise
                raise _other_width(member, error) from error

    async def _step(self, member: Member, model: str, until: float | None) -> Embedded:
        """Embed some of what lacks a vector of the model; what is left and refused is of the whole tier.

        Without `until`, a time of `time.monotonic`, it is not our turn, and nothing is embedded.
        """
        lacking = _lacking(model)
        key = (member.name, model)
        wanted = await self._first(member, lacking)
        tally = self._tallies.get(key)
        # Others take from what is left, too: the background, a forget.
        if tally is None or tally.left < PAGE or not wanted:
            every = await every_entry(member.store, lacking)
            left = len(self._takeable(member, every))
            tally = Embedded(0, left, len(every) - left)
        kept = refused = at = 0
        while until is not None and at < len(wanted) and (at == 0 or time.monotonic() < until):
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

    def _width_told(self, member: Member, model: str) -> str:
        held = None if member.info is None else member.info.dimensions
        return (
            f"its vectors have {held} numbers and those of {model} {self._vectors.dimensions}, which nothing "
            "there gets, so that words alone find it"
        )

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


def _lacking(model: str) -> Filter:
    return Filter(EVERYONE, without=model)


BARE = _lacking("")
"""What has no vector at all."""


def _other_model(model: str) -> str:
    return f"it has vectors of another model than {model}, so that words alone find what they are of"


def _other_width(member: Member, error: A2MError) -> A2MError:
    told = (
        f"nothing was changed: tier {member.name} keeps its width, for it is fixed by its settings or by "
        "vectors of callers (name another tier to leave it out)"
    )
    return A2MError(error.code, f"{told}: {error.message}", error.data)
