"""How much a principal may hold: the bytes of its owner's records in all tiers, counted between measurements.

What a write brings is added to what was measured last, so that a write asks nobody. Before one is refused the
tiers are asked again, so that nobody is refused for what is gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pydantic import ByteSize, TypeAdapter, ValidationError

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Draft
from a2m_server.identity import Caller, Role
from a2m_server.records import weight
from a2m_server.store import MemoryStore, TierStore
from a2m_server.values import Written

FRESH = 1.0
"""Seconds for which a measurement is enough to refuse by, unless something was written or forgotten here."""
SOUND = 60.0
"""Seconds after which the next write has its owner measured anew, without waiting for that."""
PATIENCE = 1.0
"""Seconds that the first write of an owner waits to be measured; a refusal waits for as long as it takes."""
SHARING = 0.25
"""Seconds between two exchanges of the counts with other servers."""
OWNERS = 10_000
"""Owners whose count is kept."""

log = logging.getLogger(__name__)

_bytes: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)


def bytes_of(text: str) -> int:
    """A number of bytes such as `100MB` or `1.5GiB`; raises `ValueError`."""
    try:
        return int(_bytes.validate_python(text.strip()))
    except ValidationError:
        raise ValueError("expected a size such as 100MB or 2GiB") from None


def quotas_of(text: str) -> Mapping[Role | None, int]:
    """Sizes by role from `100MB` or `agent=100MB; curator=2GB`, None being any other; raises `ValueError`."""
    quotas: dict[Role | None, int] = {}
    for part in text.split(";"):
        name, named, size = part.rpartition("=")
        role = Role(name.strip()) if named else None
        if role in quotas:
            raise ValueError("one size stands there twice")
        quotas[role] = bytes_of(size)
    return quotas


class Tally(Protocol):
    """Counts of owners that several servers keep together. Raises `A2MError` where that does not answer."""

    async def add(self, added: Mapping[str, int]) -> Mapping[str, int]:
        """Add bytes to owners; the sum of each that has been put there."""
        ...

    async def put(self, owner: str, total: int) -> None:
        """Begin anew with what was measured."""
        ...


@dataclass(slots=True)
class _Account:
    """What an owner holds: as it was `measured` by tier, and with what came since (`held`).

    `writing` is what of that is being written, `unsent` what the others do not know yet. `at` is when it was
    measured, `used` when it was asked for, by the monotonic clock. `changed`: there is reason to measure.
    """

    measured: dict[str, int] = field(default_factory=dict[str, int])
    held: int = 0
    unsent: int = 0
    writing: int = 0
    at: float = -math.inf
    used: float = 0.0
    changed: bool = True
    measuring: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, size: int) -> None:
        self.held += size
        self.unsent += size
        self.changed = True


class Quota:
    """Refuses writes by which a principal's owner would hold more than the principal may.

    `quotas` are as in `quotas_of`. Of several roles the most counts; operators and trusted callers have no
    limit but one that names them. A principal may have one of its own. With a `tally` the counts are shared;
    what others wrote in the last `SHARING` seconds is not known here, so that much may be held beyond.
    """

    def __init__(self, quotas: str | None = None, tally: Tally | None = None) -> None:
        self._quotas: Mapping[Role | None, int] = {} if quotas is None else quotas_of(quotas)
        self._tally = tally
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone = False

    async def open(self) -> None:
        if self._tally is not None:
            self._begin(self._share(self._tally))

    async def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def limit_of(self, caller: Caller) -> int | None:
        """How many bytes a caller's owner may hold for it to write, or None."""
        if caller.trusted or caller.name is None:
            return None
        if caller.quota is not None:
            return caller.quota
        named = [self._quotas[role] for role in caller.roles if role in self._quotas]
        if named:
            return max(named)
        return None if Role.OPERATOR in caller.roles else self._quotas.get(None)

    def forgot(self) -> None:
        """Something was removed: nobody is refused by what was measured before."""
        for account in self._accounts.values():
            account.changed = True

    @asynccontextmanager
    async def charged(
        self, store: MemoryStore, caller: Caller, drafts: Sequence[Draft]
    ) -> AsyncGenerator[list[Written]]:
        """Count what is written inside; what becomes of it is put into the list.

        Raises -32006 where the caller's owner would hold too much. What fails counts until it is measured.
        """
        limit = self.limit_of(caller)
        written: list[Written] = []
        if limit is None and not self._accounts:
            yield written
            return
        weights = [weight(draft) for draft in drafts]
        if limit is not None and caller.owner is not None:
            need = sum(w for w, d in zip(weights, drafts, strict=True) if d.owner == caller.owner)
            await self._admit(store, caller.owner, need, limit)
        accounts = [None if draft.owner is None else self._accounts.get(draft.owner) for draft in drafts]
        counted = [(a, w) for a, w in zip(accounts, weights, strict=True) if a is not None]
        for account, size in counted:
            account.writing += size
            account.add(size)
        try:
            yield written
        finally:
            for account, size in counted:
                account.writing -= size
        for account, size, wrote in zip(accounts, weights, written, strict=True):
            if account is not None and wrote.outcome not in ("created", "replaced"):
                account.add(-size)

    async def _admit(self, store: MemoryStore, owner: str, need: int, limit: int) -> None:
        account = self._account(owner)
        account.used = time.monotonic()
        if account.used - account.at > SOUND and not account.measuring.locked():
            first = account.at == -math.inf
            measuring = self._begin(self._measured_behind(store, owner, account))
            if first:
                await asyncio.wait([measuring], timeout=PATIENCE)
        if account.held + need > limit and (account.changed or time.monotonic() - account.at > FRESH):
            await self._measure(store, owner, account)
        if account.held + need > limit:
            raise A2MError(
                Code.QUOTA_EXCEEDED,
                f"{account.held:,} bytes are held, {need:,} more would come, and {limit:,} are allowed: "
                "forget what is not needed any more, or have the quota raised",
                {"held": account.held, "needed": need, "limit": limit},
            )

    def _account(self, owner: str) -> _Account:
        account = self._accounts.setdefault(owner, _Account())
        self._accounts.move_to_end(owner)
        while len(self._accounts) > OWNERS:
            self._accounts.popitem(last=False)
        return account

    async def _measure(self, store: MemoryStore, owner: str, account: _Account) -> None:
        """Ask the tiers; of one that does not answer, what it said last stands.

        What is being written meanwhile counts beside that.
        """
        asked = time.monotonic()
        async with account.measuring:
            if account.at >= asked:
                return
            account.changed = False
            before, writing, began = account.held, account.writing, time.monotonic()
            account.measured |= await _store_of(store).held(owner)
            account.held = sum(account.measured.values()) + writing + (account.held - before)
            account.at = began
            account.unsent = 0
            await self._put(owner, account.held)

    async def _measured_behind(self, store: MemoryStore, owner: str, account: _Account) -> None:
        try:
            await self._measure(store, owner, account)
        except A2MError as error:
            log.debug("what is held was not measured: %s", error.message)
            account.at = time.monotonic()

    async def _put(self, owner: str, total: int) -> None:
        if self._tally is not None:
            with suppress(A2MError):
                await self._tally.put(owner, total)

    async def _share(self, tally: Tally) -> None:
        while True:
            await asyncio.sleep(SHARING)
            used = time.monotonic() - SOUND
            known = self._accounts.items()
            mine = {
                owner: a for owner, a in known if not a.measuring.locked() and (a.unsent or a.used > used)
            }
            if mine:
                await self._exchange(tally, mine)

    async def _exchange(self, tally: Tally, mine: Mapping[str, _Account]) -> None:
        sent = {owner: account.unsent for owner, account in mine.items()}
        for account in mine.values():
            account.unsent = 0
        try:
            totals = await tally.add(sent)
        except A2MError as error:
            for owner, account in mine.items():
                account.unsent += sent[owner]
            if not self._alone:
                log.warning("what is held is counted by this server alone: %s", error.message)
            self._alone = True
            return
        self._alone = False
        for owner, total in totals.items():
            mine[owner].held = total + mine[owner].unsent

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _store_of(store: MemoryStore) -> TierStore:
    return cast("TierStore", store)
