"""A tier brought to another service while it serves: copied, compared, and switched while writes wait.

The old service is the truth until the moment in which the place of the tier is kept on disk, and the new one
from then on. Whatever dies before or after that, the work is begun again and goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from a2m_protocol.errors import A2MError, Code, invalid_params, not_supported
from a2m_protocol.types import Capability
from a2m_router.coordination import Locks, Readers
from a2m_router.listing import first_entries
from a2m_router.mirror import Mirror
from a2m_router.places import Places
from a2m_router.remote import RemoteTier
from a2m_router.tiers import Member, Tiers
from a2m_server.store import TierStore
from a2m_server.values import EVERYONE, Filter, Relocated, Relocation, StoreInfo, Tombstone

Mount = Callable[[str, str], RemoteTier]
"""Makes a store of a tier's name and a URL, not yet opened."""

LOCK = "relocation"
STEP = 4.0
"""Seconds that one call waits for the work to end."""
ABANDONED = 60.0
"""Seconds after which the work ends when nobody asks for it any more."""
FEW = 100
"""So many differences are left for the pause, and more where passes do not make them fewer."""
PASSES = 20
PAUSES = 3
LAST_PASSES = 10
MARK = "a2m/relocation"
"""The id of the tombstone by which a new service is known to hold copies and nothing of its own."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Work:
    """One tier on its way. `asked` is when somebody last wanted it, and `begun` when it began."""

    member: Member
    source: str
    target: str
    pause: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    asked: float = field(default_factory=time.monotonic)
    mirror: Mirror | None = None
    held: float = 0.0
    done: Relocated | None = None
    task: asyncio.Task[None] | None = None

    def tick(self) -> None:
        if time.monotonic() - self.asked > ABANDONED:
            raise _retryable(f"nobody asked for {self.member.name} to be moved any more: begin again")

    def told(self, state: Relocation) -> Relocated:
        told = Relocated(
            self.member.name,
            self.source,
            self.target,
            state,
            took=round(time.monotonic() - self.begun, 3),
            held=round(self.held, 3),
        )
        mirror = self.mirror
        if mirror is None:
            return told
        return replace(
            told,
            records=mirror.records,
            verified=len(mirror.pairs),
            copied=mirror.copied,
            tombstones=mirror.tombstones,
            passes=mirror.passes,
        )


class Relocator:
    """Brings one tier at a time to another service; `places` keeps where it is then."""

    def __init__(self, tiers: Tiers, locks: Locks, readers: Readers, mount: Mount, places: Places) -> None:
        self._tiers = tiers
        self._locks = locks
        self._readers = readers
        self._mount = mount
        self._places = places
        self._work: _Work | None = None

    async def close(self) -> None:
        if self._work is not None and self._work.task is not None:
            self._work.task.cancel()
            await asyncio.gather(self._work.task, return_exceptions=True)

    async def relocate(self, tier: str, url: str, *, pause: float, dry: bool = False) -> Relocated:
        """A step of `RelocatingStore.relocate`."""
        work = self._work_on(self._tiers.get(tier), url.rstrip("/"))
        if work.task is None and work.member.config.url.rstrip("/") == work.target:
            await _seal(work.member)
            return work.done or work.told("switched")
        if dry:
            return await self._look(work)
        self._work = work
        work.asked, work.pause = time.monotonic(), pause
        if work.task is None:
            work.task = asyncio.create_task(self._run(work))
        task = work.task
        await asyncio.wait([task], timeout=STEP)
        if not task.done():
            return work.told("copying")
        if work.task is task:
            work.task = None
        task.result()
        return work.done or work.told("switched")

    def _work_on(self, member: Member, url: str) -> _Work:
        work = self._work
        if work is not None and (work.member, work.target) == (member, url):
            return work
        if work is not None and work.task is not None and not work.task.done():
            raise _retryable(f"tier {work.member.name} is on its way to {work.target}: wait for that")
        return _Work(member, member.config.url, url)

    async def _look(self, work: _Work) -> Relocated:
        """What a dry run tells: that nothing is in the way, and how much there is to copy."""
        target = self._mounted(work)
        await target.open()
        try:
            await self._check(work, target)
            await self._is_free(work, target)
            counts = await work.member.store.counts(EVERYONE)
        finally:
            await target.close()
        return Relocated(work.member.name, work.source, work.target, "ready", records=sum(counts.values()))

    async def _run(self, work: _Work) -> None:
        async with self._locks.alone(LOCK) as alone:
            if not alone:
                raise _retryable("another router is moving a tier: wait until that is done")
            other = self._mounted(work)
            await other.open()
            try:
                await self._prepare(work, other)
                await self._switch(work, other)
                # What was traded for the new service is the old one.
                await self._leave(work, other)
            finally:
                await other.close()

    async def _prepare(self, work: _Work, target: RemoteTier) -> None:
        """Check everything, mark the new service and copy until little is left."""
        source = await self._check(work, target)
        self._places.check()
        if not await self._is_free(work, target):
            await _mark(target, work.member.name)
        if await _mark_of(work.member.store) == await _mark_of(target):
            # Another name of one service: the mark that was put there is here too.
            raise invalid_params(f"url: {work.target} is where tier {work.member.name} is already")
        others = [member for member in self._tiers.movable() if member is not work.member]
        marks = source.kind == "working"
        known = None if work.mirror is None else work.mirror.pairs
        work.mirror = Mirror(work.member.store, target, others, marks=marks, tick=work.tick, pairs=known)
        last = None
        for _ in range(PASSES):
            left = await work.mirror.once()
            log.info("tier %s: %d differences in pass %d", work.member.name, left, work.mirror.passes)
            if left <= FEW or (last is not None and left > last / 2):
                break
            last = left

    async def _switch(self, work: _Work, target: RemoteTier) -> None:
        """Bring over the last differences while no write is under way, and switch."""
        for _ in range(PAUSES):
            begun = time.monotonic()
            try:
                async with asyncio.timeout(work.pause), _gated(work.member).gate.held():
                    await self._finish(work, target)
                    work.held = time.monotonic() - begun
                    return
            except TimeoutError:
                log.warning("tier %s: writes waited for %g s in vain", work.member.name, work.pause)
                await _mirrored(work).once()
        raise A2MError(
            Code.INTERNAL,
            f"tier {work.member.name} was not switched, for its writes would have waited for more than "
            f"{work.pause:g} s; nearly all of it is copied: allow a longer pause, or choose a quieter time",
        )

    async def _finish(self, work: _Work, target: RemoteTier) -> None:
        mirror, member = _mirrored(work), work.member
        for _ in range(LAST_PASSES):
            await mirror.once()
            if not mirror.left:
                break
        else:
            raise A2MError(Code.INTERNAL, f"tier {member.name} was not switched: {_why(mirror)}")
        await self._check_alone()
        # Nothing is awaited from here on: who comes next meets the tier at its new place.
        try:
            self._places.move(member.name, work.target)
        except OSError as error:
            raise A2MError(Code.INTERNAL, f"tier {member.name} was not switched: {error}") from error
        _gated(member).trade(target)
        member.config = member.config.model_copy(update={"url": work.target})
        log.info("tier %s is at %s now", member.name, work.target)

    async def _leave(self, work: _Work, old: RemoteTier) -> None:
        """Learn what the new service is, look whether the old one is left alone, and keep the figures."""
        mirror, strays = _mirrored(work), 0
        try:
            await _seal(work.member)
            await work.member.learn()
        except A2MError as error:
            log.warning("tier %s is switched and does not answer: %s", work.member.name, error.message)
        # Reads that began before the switch may still be under way over there.
        await self._readers.drained()
        try:
            strays = await mirror.strays(old)
        except A2MError as error:
            log.warning("the old service of %s was not looked at: %s", work.member.name, error.message)
        work.done = replace(work.told("switched"), digest=mirror.digest, strays=strays)
        work.mirror = None

    async def _check(self, work: _Work, target: RemoteTier) -> StoreInfo:
        """Raise unless the tier can be brought to the new service; what the old one is."""
        member = work.member
        taken = {other.config.url.rstrip("/"): other.name for other in self._tiers.members}
        if work.target in taken:
            raise invalid_params(f"url: {work.target} is where tier {taken[work.target]} is")
        await self._check_alone()
        old, new = await member.learn(), await target.info()
        if not member.movable:
            raise invalid_params(f"tier {member.name} is read-only, or lacks our extensions")
        if "erase" in old.extensions:
            raise not_supported(
                f"tier {member.name} keeps a history, which copies of records would not have: stop it, copy "
                "its whole folder to the new place, and change its url in federation.yaml"
            )
        if new.kind != old.kind:
            raise invalid_params(f"url: {work.target} is a service of kind {new.kind}, not {old.kind}")
        if new.read_only:
            raise invalid_params(f"url: {work.target} is read-only")
        lacking = sorted((old.extensions - new.extensions) | {*map(str, old.capabilities - new.capabilities)})
        if lacking:
            raise invalid_params(f"url: {work.target} lacks {', '.join(lacking)}, which the old service has")
        for where, info in ((work.source, old), (work.target, new)):
            if Capability.SCOPES not in info.capabilities:
                raise invalid_params(
                    f"{where} shows this router no owner's records: give both one service token"
                )
        if old.dimensions and new.dimensions and old.dimensions != new.dimensions:
            raise invalid_params(
                f"url: vectors there have {new.dimensions} numbers, and those of the tier {old.dimensions}"
            )
        return old

    async def _check_alone(self) -> None:
        others = await self._readers.others()
        if others:
            raise invalid_params(
                f"there are {others + 1} routers over these tiers, which cannot be switched in one moment: "
                "stop all but one, move the tier, change its url in federation.yaml, and start them again"
            )

    async def _is_free(self, work: _Work, target: RemoteTier) -> bool:
        """Whether an earlier run has marked the new service; raises if it holds something of its own."""
        mark = await _mark_of(target)
        if mark is not None and mark.target == work.member.name:
            return True
        if await first_entries(target, Filter(), 1) or await target.graves(1, None):
            raise invalid_params(
                f"url: the service at {work.target} holds something that was not copied from here: name "
                "one over an empty database"
            )
        return False

    def _mounted(self, work: _Work) -> RemoteTier:
        _gated(work.member)
        try:
            given = urlsplit(work.target)
            usable = given.scheme in ("http", "https") and given.hostname and given.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise invalid_params(f"url: expected one such as http://10.0.0.7:8782, not {work.target[:80]!r}")
        return self._mount(work.member.name, work.target)


def _gated(member: Member) -> RemoteTier:
    if not isinstance(member.store, RemoteTier):
        raise not_supported(f"tier {member.name} is in the router's own process: it has no other place")
    return member.store


def _mirrored(work: _Work) -> Mirror:
    assert work.mirror is not None, "it was made before writes were held up"  # noqa: S101 our own order
    return work.mirror


async def _mark_of(store: TierStore) -> Tombstone | None:
    return next(iter(await store.tombstones([MARK])), None)


async def _mark(store: TierStore, target: str | None) -> None:
    """Say on a service that it is being filled with copies of the tier `target`, or with None no more."""
    held = await _mark_of(store)
    moves = 1 if held is None else held.moves + 1
    await store.bury([Tombstone(MARK, "moved", time.time_ns() // 1_000, target=target, moves=moves)])


async def _seal(member: Member) -> None:
    """From now on the service holds what is its own: it will not be taken for a place to fill again."""
    held = await _mark_of(member.store)
    if held is not None and held.target is not None:
        await _mark(member.store, None)


def _why(mirror: Mirror) -> str:
    if not mirror.refused:
        return "somebody goes on changing the old service, or the new one, without this router"
    record_id, reason = next(iter(mirror.refused.items()))
    return f"the new service does not take {len(mirror.refused)} records, such as {record_id!r}: {reason}"


def _retryable(message: str) -> A2MError:
    return A2MError(Code.INTERNAL, message, {"retryable": True})
