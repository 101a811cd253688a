"""Skills in a git repository: one commit a write call, reads from memory, counts and vectors beside git."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from a2m_procedural import remnants
from a2m_procedural.bench import KIND, Bench
from a2m_procedural.boundary import translated
from a2m_procedural.catalogue import Catalogue
from a2m_procedural.draft import Change, compare
from a2m_procedural.eraser import Eraser, end_left
from a2m_procedural.journal import Effects, Intent, Journal
from a2m_procedural.lock import locked
from a2m_procedural.plumbing import GitError
from a2m_procedural.repository import Note, Repository, open_repository
from a2m_procedural.shelf import Shelf, View
from a2m_protocol.clock import SEQ_PER_MS
from a2m_protocol.errors import embedding_mismatch, unavailable
from a2m_protocol.types import Draft, Record
from a2m_retrieval.metric import Metric
from a2m_server import tracing
from a2m_server.sizes import Size, space
from a2m_server.values import (
    EVERYONE,
    Buried,
    Deleted,
    Entry,
    Erased,
    Fetched,
    Filter,
    Forgotten,
    Found,
    Inspected,
    Judged,
    Named,
    Page,
    Reason,
    Remnant,
    Scope,
    Search,
    Seen,
    Sessions,
    StoreInfo,
    Tombstone,
    Written,
)

ATTEMPTS = 30
DAY_MS = 86_400_000
FORGETS = frozenset({"forget", "bury", "delete"})

Step = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Which repository, and how to work on it; times in seconds or as named."""

    path: Path
    branch: str | None = None
    folder: str = ""
    author_name: str = "A2M procedural memory"
    author_email: str = "procedural@a2m.invalid"
    tombstone_days: float = 30.0
    dimensions: int | None = None
    metric: Metric = "cosine"
    lock_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Hand:
    """What one thread works with."""

    repository: Repository
    journal: Journal
    shelf: Shelf


class ProceduralStore:
    """A `TierStore` of skills. `clock` gives microseconds since 1970; `observe` hears of each step.

    Reads and writes have a thread each; writers of all processes take turns by a lock file, and the branch
    moves only from the commit that a write was planned on, so that a person's own commits are never lost.
    """

    def __init__(
        self,
        place: Place,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
        observe: Step = lambda _: None,
    ) -> None:
        self._place = place
        self._clock = clock
        self._observe = observe
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._reader: Hand | None = None
        self._writer: Hand | None = None
        self._looker: Hand | None = None
        self._catalogue = Catalogue()
        self._seen: tuple[View, Bench] | None = None

    async def open(self) -> None:
        """Make or mount the repository, and finish or drop what a killed writer left."""
        names = ("read", "write", "look")
        self._threads = {name: ThreadPoolExecutor(1, f"procedural-{name}") for name in names}
        try:
            await self._in("write", self._open)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let a write that has begun end, then let go of the repository."""
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            await asyncio.to_thread(thread.shutdown)
        for hand in (self._reader, self._writer, self._looker):
            if hand is not None:
                hand.journal.close()
        self._reader = self._writer = self._looker = self._seen = None

    async def ready(self) -> None:
        await self._in("read", self._ping)

    async def info(self) -> StoreInfo:
        info = await (await self._bench()).info()
        return replace(info, extensions=info.extensions | {"erase"})

    async def counts(self, scope: Scope) -> dict[str, int]:
        return await (await self._bench()).counts(scope)

    async def size(self) -> Size:
        records = sum((await self.counts(EVERYONE)).values())
        return Size(records, *await self._in("look", self._space))

    async def write(self, drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        """One commit a call, or none where nothing changes but counts."""
        return await self._change(
            "remember", [d.id for d in drafts], lambda bench: bench.write(drafts, scope)
        )

    async def search(self, search: Search) -> Found:
        return await (await self._bench()).search(search)

    async def timeline(self, page: Page) -> Found:
        return await (await self._bench()).timeline(page)

    async def fetch(self, key: str, scope: Scope, *, vectors: bool) -> Fetched:
        return await (await self._bench()).fetch(key, scope, vectors=vectors)

    async def forget(self, selected: Filter) -> Forgotten:
        """Remove from the tip of the branch; its history keeps what was."""
        forgotten = await self._change("forget", selected.ids or (), lambda bench: bench.forget(selected))
        return replace(forgotten, history={KIND: len(forgotten.ids)} if forgotten.ids else {})

    async def sessions(self, scope: Scope) -> Sessions:
        return await (await self._bench()).sessions(scope)

    async def reinforce(self, ids: Sequence[str], amount: float, scope: Scope) -> int:
        return await self._change("reinforce", (), lambda bench: bench.reinforce(ids, amount, scope))

    async def touch(self, ids: Sequence[str], at: str) -> None:
        await self._change("touch", (), lambda bench: bench.touch(ids, at))

    async def transfer(self, drafts: Sequence[Draft]) -> list[Written]:
        return await self._change("transfer", [d.id for d in drafts], lambda bench: bench.transfer(drafts))

    async def delete_if(
        self, named: Sequence[Named], reason: Reason, target: str | None
    ) -> dict[str, Deleted]:
        ids = [name.id for name in named]
        return await self._change("delete", ids, lambda bench: bench.delete_if(named, reason, target))

    async def tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return await self._in("read", partial(self._tombstones, ids))

    async def graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        return await self._in("read", partial(self._graves, limit, after))

    async def bury(self, tombstones: Sequence[Tombstone]) -> dict[str, Buried]:
        return await self._change("bury", [stone.id for stone in tombstones], lambda b: b.bury(tombstones))

    async def entries(self, selected: Filter, limit: int, after: tuple[int, str] | None) -> list[Entry]:
        return await (await self._bench()).entries(selected, limit, after)

    async def read(self, ids: Sequence[str]) -> list[Record]:
        return await (await self._bench()).read(ids)

    async def held(self, owner: str | None) -> dict[str, int]:
        return await (await self._bench()).held(owner)

    async def settle(self, named: Sequence[Named]) -> None:
        await self._change("settle", (), lambda bench: bench.settle(named))

    async def judge(self, judged: Sequence[Judged]) -> dict[str, bool]:
        return await self._change("judge", (), lambda bench: bench.judge(judged))

    async def embed(self, seen: Sequence[Seen]) -> dict[str, bool]:
        """Outside git, in one transaction of the journal; a width that the settings fix stays."""
        fixed = self._place.dimensions
        for one in seen:
            if fixed is not None and len(one.embedding) != fixed:
                raise embedding_mismatch(fixed, len(one.embedding))
        return await self._change("embed", (), lambda bench: bench.embed(seen))

    async def remnants(self, ids: Sequence[str]) -> Inspected:
        """Also in what this process holds in memory, and in history."""
        ids = list(dict.fromkeys(ids))
        found = await self._in("look", partial(self._remnants, ids))
        cached = [i for i, _ in (await self._bench()).ledger.traces(ids)]
        return Inspected([*found, *(Remnant(i, "cache") for i in dict.fromkeys(cached))], (KIND,))

    async def erase(self, ids: Sequence[str], *, dry: bool = False) -> Erased:
        if dry:
            return await self._in("read", partial(self._past, ids))
        return await self._in("write", partial(self._erase, list(dict.fromkeys(ids))))

    async def _bench(self) -> Bench:
        return await self._in("read", self._look)

    async def _change(self, call: str, ids: Iterable[str], act: Callable[[Bench], Awaitable[T]]) -> T:
        return await self._in("write", partial(self._commit, call, list(ids), act))

    async def _in(self, thread: str, work: Callable[[], T]) -> T:
        pool = self._threads.get(thread)
        if pool is None:
            raise unavailable("the skills repository", "it is not open")
        with translated(self._place.path), tracing.querying("git", thread):
            return await asyncio.get_running_loop().run_in_executor(pool, work)

    def _open(self) -> None:
        place = self._place
        repository = open_repository(place.path, place.branch)
        with locked(repository.private / "lock", place.lock_timeout) as descriptor:
            repository.lend(descriptor)
            self._writer = self._hand(repository)
            self._finish(self._writer)
            end_left(repository, self._writer.journal, self._observe)
            repository.lend(None)
        self._reader = self._hand(open_repository(place.path, place.branch))
        self._looker = self._hand(open_repository(place.path, place.branch))
        self._look()

    def _hand(self, repository: Repository) -> Hand:
        days = self._place.tombstone_days
        journal = Journal(repository.private / "journal.sqlite3", int(days * DAY_MS))
        return Hand(repository, journal, Shelf(repository, journal, self._catalogue))

    def _look(self) -> Bench:
        """A bench over what is there now; it is kept until that changes."""
        shelf = _opened(self._reader).shelf
        try:
            view = shelf.view(self._ms())
        except GitError:
            # What was the tip a moment ago may have been erased meanwhile.
            view = shelf.view(self._ms())
        if self._seen is None or self._seen[0] is not view:
            self._seen = (view, self._bench_of(view, {}))
        return self._seen[1]

    def _ping(self) -> None:
        """Reach for the branch and the journal, and read neither."""
        hand = _opened(self._reader)
        hand.repository.head()
        hand.journal.version()

    def _space(self) -> tuple[int, int]:
        return space(_opened(self._looker).repository.common)

    def _tombstones(self, ids: Sequence[str]) -> list[Tombstone]:
        return list(_opened(self._reader).journal.tombstones(ids, self._ms()).values())

    def _graves(self, limit: int, after: tuple[int, str] | None) -> list[Tombstone]:
        return _opened(self._reader).journal.graves(limit, after, self._ms())

    def _remnants(self, ids: list[str]) -> list[Remnant]:
        hand = _opened(self._looker)
        return remnants.find(hand.repository, hand.journal, ids)

    def _past(self, ids: Sequence[str]) -> Erased:
        held = _opened(self._reader).journal.past(ids)
        return Erased({record_id: "held" if record_id in held else "absent" for record_id in ids})

    def _erase(self, ids: list[str]) -> Erased:
        hand = _opened(self._writer)
        with locked(hand.repository.private / "lock", self._place.lock_timeout) as descriptor:
            hand.repository.lend(descriptor)
            try:
                self._finish(hand)
                eraser = Eraser(hand.repository, hand.journal, self._observe)
                eraser.end()
                outcomes = eraser.erase(ids)
                hand.journal.erased([i for i, outcome in outcomes.items() if outcome != "live"])
            finally:
                hand.repository.lend(None)
        erased = sum(outcome == "erased" for outcome in outcomes.values())
        return Erased(outcomes, {KIND: erased}, {KIND: eraser.remotes} if erased and eraser.remotes else {})

    def _ms(self) -> int:
        return self._clock() // SEQ_PER_MS

    def _bench_of(self, view: View, graves: dict[str, Tombstone]) -> Bench:
        place = self._place
        return Bench(view, graves, metric=place.metric, dimensions=place.dimensions, clock=self._clock)

    def _commit(self, call: str, ids: list[str], act: Callable[[Bench], Awaitable[T]]) -> T:
        """Try a call on a copy of what is there, then make the changes true; again if the branch moved."""
        hand = _opened(self._writer)
        with locked(hand.repository.private / "lock", self._place.lock_timeout) as descriptor:
            hand.repository.lend(descriptor)
            try:
                self._finish(hand)
                for _ in range(ATTEMPTS):
                    view = hand.shelf.view(self._ms())
                    graves = hand.journal.tombstones(ids, self._ms())
                    bench = self._bench_of(view, graves)
                    result = asyncio.run(_result(act(bench)))
                    change = compare(view, graves, bench, self._place.folder, forgets=call in FORGETS)
                    if not change.edits:
                        if change.effects != Effects():
                            hand.journal.apply(change.effects, self._ms())
                        return result
                    if self._advance(hand, view.head, change, call):
                        return result
                    time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 jitter, no secret
            finally:
                hand.repository.lend(None)
        raise unavailable("the skills repository", "its branch moved under every attempt to write")

    def _advance(self, hand: Hand, base: str | None, change: Change, call: str) -> bool:
        """Intent, branch, effects; a kill between any two is finished or undone by the next writer."""
        repository = hand.repository
        place, message = self._place, change.message(call)
        note = Note(place.author_name, place.author_email, self._ms(), message)
        commit, blobs = repository.commit(base, change.files, note)
        self._observe("made")
        blocked = repository.blocked(base, commit)
        if blocked is not None:
            raise GitError(f"a person's uncommitted changes are in the way: {blocked}")
        hand.journal.intend(Intent(commit, base, change.effects))
        self._observe("intended")
        if not repository.advance(base, commit):
            hand.journal.drop(commit)
            return False
        self._catalogue.learn(blobs)
        self._observe("advanced")
        self._follow(hand, base)
        self._observe("followed")
        hand.journal.apply(change.effects, self._ms(), commit)
        self._observe("applied")
        return True

    def _finish(self, hand: Hand) -> None:
        """Settle what killed writers left; the write lock is held, so nobody is at work on it."""
        if hand.journal.erasures():
            Eraser(hand.repository, hand.journal, self._observe).resume()
        for intent in hand.journal.intents():
            if hand.repository.contains(intent.commit):
                self._follow(hand, intent.base)
                hand.journal.apply(intent.effects, self._ms(), intent.commit)
            else:
                hand.journal.drop(intent.commit)
        unfollowed = hand.journal.unfollowed()
        head = hand.repository.head()
        if unfollowed is not None and head is not None and hand.repository.follow(unfollowed or None, head):
            hand.journal.set_unfollowed(None)

    def _follow(self, hand: Hand, base: str | None) -> None:
        head = hand.repository.head()
        if head is not None and not hand.repository.follow(base, head) and hand.journal.unfollowed() is None:
            hand.journal.set_unfollowed(base or "")


async def _result(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _opened(hand: Hand | None) -> Hand:
    if hand is None:
        raise unavailable("the skills repository", "it is not open")
    return hand
