"""Calls to a federation, each with what its outcome says of the facts that it was about."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal
from uuid import uuid4

from possible import (
    UNBOUNDED,
    Change,
    Contradiction,
    Effect,
    Fields,
    Kept,
    Slot,
    either,
    in_turn,
    perhaps,
    surely,
)

from a2m_protocol.errors import A2MError

Owner = str | None | Literal[False]
"""Whose call it is: an owner's, that of one who has none, or (False) of one who sees everything."""
Effects = list[tuple[Slot, Effect]]

DEEP = ("semantic", "procedural")
"""Tiers that nothing leaves by itself."""
WORDS = ("plum", "pear", "fig")
KINDS = ("a", "b")


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with an answer or with an error; `began` and `ended` are moments of the world."""

    router: str
    began: int
    ended: int
    answer: Fields | None = None
    error: A2MError | None = None

    @property
    def degraded(self) -> bool:
        return self.answer is not None and "degraded" in self.answer


@dataclass
class World:
    """Owners, sessions, groups and keys that nobody else uses, and all that was told of them.

    `now` counts calls. `written` and `forgotten` are what the event log has still to show, and which router
    answered.
    """

    mark: str = field(default_factory=lambda: f"mark{uuid4().hex[:12]}")
    now: int = 0
    recalls: int = 0
    slots: list[Slot] = field(default_factory=list[Slot])
    by_id: dict[str, Slot] = field(default_factory=dict[str, Slot])
    by_content: dict[str, Slot] = field(default_factory=dict[str, Slot])
    by_key: dict[tuple[str | None, str], Slot] = field(default_factory=dict[tuple[str | None, str], Slot])
    sent: list[Remember] = field(default_factory=list["Remember"])
    written: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    forgotten: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def owners(self) -> tuple[str | None, ...]:
        return f"ana-{self.mark}", f"bob-{self.mark}", None

    @property
    def sessions(self) -> tuple[str | None, ...]:
        """Named ones, then the implicit one."""
        return f"talk-{self.mark}", f"chat-{self.mark}", None

    @property
    def groups(self) -> tuple[str, ...]:
        return f"call-{self.mark}", f"book-{self.mark}"

    @property
    def keys(self) -> tuple[str, ...]:
        return f"{self.mark}/a", f"{self.mark}/a/b", f"{self.mark}/ab"

    def moment(self) -> int:
        self.now += 1
        return self.now

    def slot(self, name: str, owner: str | None, key: str | None) -> Slot:
        """The fact that a new record is about: what is at its key, else itself."""
        if key is not None and (owner, key) in self.by_key:
            return self.by_key[owner, key]
        slot = Slot(name if key is None else f"{key} of {owner}", owner, key)
        self.slots.append(slot)
        if key is not None:
            self.by_key[owner, key] = slot
        return slot

    def of(self, record: Fields) -> Slot:
        """The fact that a record shown is."""
        slot = self.by_id.get(str(record["id"])) or self.by_content.get(str(record["content"]))
        if slot is None:
            raise Contradiction(f"nobody wrote {record}")
        self.by_id[str(record["id"])] = slot
        return slot

    def sees(self, owner: Owner) -> list[Slot]:
        """The facts that a caller sees."""
        return [slot for slot in self.slots if owner is False or slot.owner in (owner, None)]

    def seen(self, shown: Iterable[Fields], what: str) -> dict[Slot, Fields]:
        """What was shown, by fact; raises where something is shown twice."""
        found: dict[Slot, Fields] = {}
        for record in shown:
            slot = self.of(record)
            if slot in found:
                raise Contradiction(f"{what} shows twice: {found[slot]} and {record}")
            found[slot] = record
        return found


@dataclass(frozen=True)
class Deed(ABC):
    """One call. `owner` is whose it is, and left out of the call where that is False."""

    method: ClassVar[str]
    world: World = field(repr=False)
    owner: Owner

    @abstractmethod
    def params(self) -> Fields:
        """The parameters but for `owner`."""

    def scope(self) -> Fields:
        return {} if self.owner is False else {"owner": self.owner}

    def effects(self, outcome: Outcome) -> Effects:
        """What the outcome did to each fact."""
        return []

    def check(self, outcome: Outcome, busy: Collection[Slot]) -> None:
        """Hold an answer against what is possible, but for facts that were `busy` meanwhile."""


@dataclass(frozen=True)
class Part:
    """A record to write, and the fact that it is about."""

    slot: Slot = field(repr=False)
    draft: Fields

    @property
    def tier(self) -> str | None:
        return self.draft.get("tier")


@dataclass(frozen=True)
class Remember(Deed):
    method = "remember"
    parts: tuple[Part, ...]
    session: str | None
    batch: int

    def params(self) -> Fields:
        default = {} if self.session is None else {"session": self.session}
        return {"records": [part.draft for part in self.parts], **default}

    def effects(self, outcome: Outcome) -> Effects:
        found: dict[Slot, list[Effect]] = {}
        for at, part in enumerate(self.parts):
            found.setdefault(part.slot, []).append(self._effect(at, part, outcome))
        return [(slot, in_turn(effects)) for slot, effects in found.items()]

    def _effect(self, at: int, part: Part, outcome: Outcome) -> Effect:
        sent = self.kept(at, "", (outcome.began, UNBOUNDED))
        if outcome.answer is None:
            return perhaps(lambda kept: write(kept, sent), lambda kept: unwrite(kept, sent))
        told: Fields = outcome.answer["written"][at]
        record_id = str(outcome.answer["ids"][at])
        sent = self.kept(at, record_id, (outcome.began, outcome.ended))
        wrote, revision = told["outcome"], told.get("revision", 0)

        def agrees(kept: Kept | None) -> bool:
            after = write(kept, sent)
            right = "created" if kept is None else "existing" if after == kept else "replaced"
            return (
                (wrote, revision) == (right, after.revision if right != "existing" else revision)
                and record_id in (after.id, part.slot.assigned)
            )

        def change(kept: Kept | None) -> Kept | None:
            after = write(kept, sent)
            moved = wrote == "replaced" and part.tier is not None and told.get("tier") == part.tier
            return replace(after, home=self._home(part)) if moved else after

        return surely(change, agrees)

    def kept(self, at: int, record_id: str, born: tuple[int, int]) -> Kept:
        """The record that one of the drafts makes where there is none."""
        part = self.parts[at]
        sent = {name: value for name, value in part.draft.items() if name not in ("id", "tier", "salience")}
        if isinstance(self.owner, str):
            sent.setdefault("owner", self.owner)
        if self.session is not None:
            sent.setdefault("session", self.session)
        return Kept(
            id=part.draft.get("id", record_id),
            sent=json.dumps({n: v for n, v in sent.items() if v is not None}),
            born=born,
            place=(self.batch, at),
            salience=part.draft.get("salience", 1.0),
            home=self._home(part),
            asked=part.tier is not None,
            weighed="salience" in part.draft,
        )

    @staticmethod
    def _home(part: Part) -> str | None:
        return part.tier if part.tier in DEEP and "group" not in part.draft else None


def write(kept: Kept | None, sent: Kept) -> Kept:
    """What a record that is sent makes of what is there."""
    if kept is None:
        return sent
    if kept.knows(sent.id) or "key" not in sent.fields:
        return kept
    homeless = sent.asked or "group" in sent.fields
    return replace(
        kept,
        sent=sent.sent,
        revision=kept.revision + 1,
        salience=sent.salience if sent.weighed else kept.salience,
        home=None if homeless else kept.home,
        aliases=kept.aliases | {sent.id},
    )


def unwrite(kept: Kept | None, sent: Kept) -> Kept | None:
    """A creation is undone, and what it has become meanwhile is not."""
    return None if kept == sent else kept
