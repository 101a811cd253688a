"""The tiers of a federation as the router sees them, and asking many of them at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from a2m_protocol.errors import (
    A2MError,
    Code,
    embedding_mismatch,
    invalid_params,
    unknown_tier,
)
from a2m_protocol.types import Capability, Draft
from a2m_protocol.where import Where
from a2m_router.config import TierConfig
from a2m_server.store import TierStore
from a2m_server.values import Degraded, StoreInfo

T = TypeVar("T")

MOVING = frozenset({"transfer", "forget_if", "tombstones", "list"})
"""The extensions without which a tier is read and written but never part of a move."""

log = logging.getLogger(__name__)


class Member:
    """One tier: its configuration, its store, and what it last said of itself."""

    def __init__(
        self, config: TierConfig, store: TierStore, silence: Callable[[], str | None] = lambda: None
    ) -> None:
        """`silence` says why the tier is not asked at present, or None."""
        self.config = config
        self.store = store
        self.silence = silence
        self.info: StoreInfo | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def writable(self) -> bool:
        return not self.config.read_only and not (self.info is not None and self.info.read_only)

    def has(self, capability: Capability) -> bool:
        """Whether the tier declares a capability; one of ours that has not answered yet has them all."""
        return self.info is None or capability in self.info.capabilities

    @property
    def movable(self) -> bool:
        """Whether records move in and out; a tier of ours that has not answered yet counts as movable."""
        return self.writable and (self.info is None or self.info.extensions >= MOVING)

    @property
    def embeds(self) -> bool:
        """Whether the tier keeps vectors that are made after a record was written."""
        if self.config.kind == "working" or not self.writable or self.info is None:
            return False
        return "embed" in self.info.extensions

    @property
    def unfixed(self) -> bool:
        """Whether the tier had no vector yet when it was last asked: the first one fixes their width."""
        return self.info is not None and self.info.dimensions is None and self.has(Capability.EMBEDDINGS)

    async def learn(self) -> StoreInfo:
        self.info = await self.store.info()
        return self.info


class Tiers:
    """All tiers, in the order of the configuration; the first writable one of kind working is `entry`."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._by_name = {member.name: member for member in members}
        entries = [m for m in members if m.config.kind == "working" and not m.config.read_only]
        self._entry = entries[0] if entries else None

    @property
    def entry(self) -> Member:
        """Where records land."""
        if self._entry is None:
            raise A2MError(Code.READ_ONLY, "every tier of this federation is read-only")
        return self._entry

    @property
    def read_only(self) -> bool:
        return self._entry is None

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Member:
        if name not in self._by_name:
            raise unknown_tier(name, [*self._by_name])
        return self._by_name[name]

    def movable(self) -> list[Member]:
        return [member for member in self.members if member.movable]

    def readable(self, tier: str | None, where: Where) -> tuple[list[Member], Where]:
        """The tiers that a read asks, and the filter that is left to ask of them."""
        members = [self.get(tier)] if tier is not None else [*self.members]
        conditions = [c for c in where.conditions if c.field == "tier" and not c.metadata]
        if not conditions:
            return members, where
        placed = Where(tuple(conditions))
        rest = Where(tuple(c for c in where.conditions if c not in conditions))
        return [member for member in members if placed.matches({"tier": member.name})], rest

    def embedding(self, tier: str | None, members: Sequence[Member]) -> list[Member]:
        """Those of `members` that keep vectors made after a record was written.

        Raises -32602 where the call names a `tier` that does not.
        """
        if tier is not None and not self.get(tier).embeds:
            raise invalid_params(f"tier {tier} does not keep vectors that are made by a federation")
        return [member for member in members if member.embeds]

    def target(self, name: str) -> Member:
        """The tier that a write or a move names; raises -32602 for one that takes none."""
        member = self.get(name)
        if not member.writable:
            raise invalid_params(f"tier {name} is mounted read-only: write to another")
        return member

    def check_taken(self, member: Member, drafts: Iterable[Draft]) -> None:
        """Raise -32602 for an owner, a key or a session that a tier would drop silently."""
        for draft in drafts:
            for capability, value in (
                (Capability.SCOPES, draft.owner),
                (Capability.KEYS, draft.key),
                (Capability.SESSIONS, draft.session),
            ):
                if value is not None and not member.has(capability):
                    raise invalid_params(f"tier {member.name} does not declare {capability}: write elsewhere")

    @property
    def scoped(self) -> bool:
        """Whether every tier that holds records of ours keeps owners apart."""
        return all(member.has(Capability.SCOPES) for member in self.movable())

    @property
    def width(self) -> int | None:
        """The width of the federation's vectors, once a tier has fixed one."""
        known = [member.info for member in self.movable() if member.info is not None]
        return next((info.dimensions for info in known if info.dimensions), None)

    def check_width(self, drafts: Iterable[Draft]) -> bool:
        """Whether a batch holds the first vectors; raises -32008 for one that a tier could not take later."""
        expected = self.width
        given = {len(draft.embedding) for draft in drafts if draft.embedding is not None}
        for width in given:
            if expected is not None and width != expected:
                raise embedding_mismatch(expected, width)
        return bool(given) and expected is None

    async def learn(self) -> list[Degraded]:
        """Ask those that have not answered yet what they are; the ones that still do not."""
        unknown = [member for member in self.members if member.info is None]
        _, silent = await ask(unknown, lambda member: member.learn())
        return silent


async def ask(
    members: Sequence[Member], question: Callable[[Member], Awaitable[T]]
) -> tuple[dict[str, T], list[Degraded]]:
    """Ask tiers at once: the answers by tier, and those that did not answer.

    Raises what a tier answers that is the caller's fault, a filter that it cannot honour for example.
    """
    answers = await asyncio.gather(*(question(member) for member in members), return_exceptions=True)
    given: dict[str, T] = {}
    silent: list[Degraded] = []
    for member, answer in zip(members, answers, strict=True):
        if isinstance(answer, A2MError) and (answer.retryable or answer.code == Code.INTERNAL):
            log.debug("%s did not answer: %s", member.name, answer.message)
            silent.append(Degraded(member.name, answer.message))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            given[member.name] = answer
    return given, silent


async def ask_all(members: Sequence[Member], question: Callable[[Member], Awaitable[T]]) -> dict[str, T]:
    """The same where every tier must answer; raises a retryable error that names those that did not."""
    answers, silent = await ask(members, question)
    if silent:
        raise A2MError(Code.INTERNAL, "; ".join(d.reason for d in silent), {"retryable": True})
    return answers
