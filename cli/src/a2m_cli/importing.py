"""Writes records to a server so that it goes on over restarts, and so that doing it again changes nothing."""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from a2m_cli.batches import Batch, batches, halves
from a2m_cli.connection import CliError, require_extensions
from a2m_cli.formats import Item, read_items
from a2m_protocol.client import Client
from a2m_protocol.errors import A2MError, JsonObject

BATCH = 100
WORKERS = 4
PATIENCE_SECONDS = 120.0

_LONGEST_BATCH = 500
_BATCH_BYTES = 4 * 2**20
_CALL_SECONDS = 60.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_QUEUED = 2
_THERE = frozenset({"exists", "moved"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that the server did not take, and why; `forgotten` is one that was deleted on purpose."""

    item: Item
    reason: str


@dataclass(slots=True)
class Report:
    """What became of the records that were read; `seconds` is how long writing took."""

    written: int = 0
    there: int = 0
    refused: list[Refusal] = field(default_factory=list[Refusal])
    seconds: float = 0.0

    @property
    def done(self) -> int:
        return self.written + self.there + len(self.refused)

    @property
    def reasons(self) -> Counter[str]:
        return Counter(refusal.reason for refusal in self.refused)

    @property
    def failed(self) -> bool:
        """Whether something was refused that had not been forgotten before."""
        return any(reason != "forgotten" for reason in self.reasons)


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to import, seen before anything is written."""

    records: int
    sessions: int
    tiers: frozenset[str]
    owned: bool
    undated: int = 0

    def without_tiers(self) -> Survey:
        return replace(self, tiers=frozenset())


Listener = Callable[[Report, str], None]
"""Told of the progress so far and, when the server cannot be reached, what is being waited for (else "")."""


def items_of(files: Sequence[Path], start: int) -> Iterator[Item]:
    """The records of all files; raises `FormatError` and `OSError`."""
    for path in files:
        with path.open("rb") as lines:
            yield from read_items(lines, path.stem, start=start)


def survey(items: Iterable[Item]) -> Survey:
    """Read everything once, which raises `FormatError` for the first line that is wrong."""
    records, undated, owned = 0, 0, False
    sessions: set[str] = set()
    tiers: set[str] = set()
    for item in items:
        records += 1
        undated += item.undated
        if item.session is not None:
            sessions.add(item.session)
        owned = owned or item.fields.get("owner") is not None
        if item.tier is not None:
            tiers.add(item.tier)
    return Survey(records, len(sessions), frozenset(tiers), owned, undated)


def check(found: Survey, described: JsonObject) -> None:
    """Raise `CliError` when the server cannot take what was found without changing it."""
    require_extensions(described, ["transfer"], "import")
    tiers = [str(tier["name"]) for tier in cast("list[JsonObject]", described.get("tiers") or [])]
    unknown = sorted(found.tiers.difference(tiers))
    if unknown:
        raise CliError(
            f"the records are of tiers that this server does not have: {', '.join(unknown)}; with "
            "--ignore-tiers they go where new records go"
        )
    if found.owned and "scopes" not in cast("list[str]", described.get("capabilities") or []):
        raise CliError(
            "the records have owners, and this server keeps none apart without authentication: give the "
            "router a token (A2M_ROUTER_TOKEN_FILE), and its content by --token-file"
        )


class Importer:
    """Writes batches by a few workers, one batch of a session at a time.

    A call that failed for a passing reason is repeated until the server has been away for `patience`
    seconds; then its `A2MError` is raised, and importing again later goes on from there.
    """

    def __init__(
        self,
        client: Client,
        *,
        listener: Listener | None = None,
        patience: float = PATIENCE_SECONDS,
        workers: int = WORKERS,
        keep_tiers: bool = True,
        longest: int = _LONGEST_BATCH,
    ) -> None:
        self._client = client
        self._listener = listener
        self._patience = patience
        self._workers = workers
        self._keep_tiers = keep_tiers
        self._longest = longest
        self.report = Report()

    async def run(self, items: Iterable[Item], *, size: int = BATCH) -> Report:
        """Write everything and return what became of it."""
        started = time.monotonic()
        queues = [asyncio.Queue[Batch | None](_QUEUED) for _ in range(self._workers)]
        size = min(size, self._longest)
        try:
            async with asyncio.TaskGroup() as group:
                for queue in queues:
                    group.create_task(self._work(queue))
                for batch in batches(items, size=size, longest=self._longest, most_bytes=_BATCH_BYTES):
                    # A session has one worker, so that its records are never written by two at a time.
                    await queues[zlib.crc32((batch.session or "").encode()) % len(queues)].put(batch)
                for queue in queues:
                    await queue.put(None)
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None
        finally:
            self.report.seconds = time.monotonic() - started
        return self.report

    async def _work(self, queue: asyncio.Queue[Batch | None]) -> None:
        while (batch := await queue.get()) is not None:
            await self._write(batch)

    async def _write(self, batch: Batch) -> None:
        records = [self._wire(item) for item in batch.items]
        try:
            answer = await self._persist(records)
        except A2MError as error:
            if error.retryable or not _is_about_records(error):
                raise
            first, *others = batch.items
            if others:
                for half in halves(batch):
                    await self._write(half)
                return
            self.report.refused.append(Refusal(first, error.message))
        else:
            self._count(batch, answer)
        self._tell()

    async def _persist(self, records: list[JsonObject]) -> JsonObject:
        failing_since: float | None = None
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._client.remember(records, transfer=True, timeout=_CALL_SECONDS)
            except A2MError as error:
                if not error.retryable:
                    raise
                now = time.monotonic()
                failing_since = failing_since or now
                if now - failing_since > self._patience:
                    raise
                self._tell(error.message)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 no secret
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _wire(self, item: Item) -> JsonObject:
        if self._keep_tiers:
            return item.fields
        return {name: value for name, value in item.fields.items() if name != "tier"}

    def _count(self, batch: Batch, answer: JsonObject) -> None:
        receipts = cast("list[JsonObject]", answer.get("written") or [])
        if len(receipts) != len(batch.items):
            raise CliError("the server did not say what became of each record: it is no federation of ours")
        for item, receipt in zip(batch.items, receipts, strict=True):
            outcome, reason = receipt.get("outcome"), str(receipt.get("reason") or "without a reason")
            if outcome in ("created", "replaced"):
                self.report.written += 1
            elif outcome in ("existing", "moved") or reason in _THERE:
                self.report.there += 1
            else:
                self.report.refused.append(Refusal(item, reason))

    def _tell(self, waiting: str = "") -> None:
        if self._listener is not None:
            self._listener(self.report, waiting)


def _is_about_records(error: A2MError) -> bool:
    """Whether the server refused what it was given, rather than us."""
    return error.code in _REFUSALS


_REFUSALS = frozenset({-32602, -32006, -32005, -32008, -32002})
