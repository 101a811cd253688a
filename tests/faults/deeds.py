"""Calls to a federation, each with what its outcome says of the facts that it was about."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from possible import (
    UNBOUNDED,
    Change,
    ContradictionError,
    Effect,
    Fields,
    Kept,
    Slot,
    either,
    in_turn,
    perhaps,
    surely,
)
from world import Owner, Selection, World

from a2m_protocol.errors import A2MError

Effects = list[tuple[Slot, Effect]]

DEEP = ("semantic", "procedural")
"""Tiers that nothing leaves by itself."""


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with an answer or with an error; `began` and `ended` are moments of the world.

    While all was `calm`, no call that a router makes can have been lost and repeated. `alone` says that no
    other call of a client was under way.
    """

    router: str
    began: int
    ended: int
    calm: bool
    alone: bool
    answer: Fields | None = None
    error: A2MError | None = None


@dataclass(frozen=True)
class Deed:
    """One call. `owner` is whose it is, and is left out of the call where that is False."""

    method: ClassVar[str]
    world: World = field(repr=False)
    owner: Owner

    def params(self) -> Fields:
        """The parameters but for `owner`."""
        return {}

    def sent(self) -> Fields:
        """All parameters."""
        return self.params() if self.owner is False else {**self.params(), "owner": self.owner}

    def about(self) -> Collection[Slot]:
        """The facts that the call is made for."""
        return ()

    def heard(self, outcome: Outcome) -> None:
        """Take in what else an answer tells: ids, and what the event log has to show."""

    def effects(self, outcome: Outcome) -> Effects:
        """What the call did to each fact, as its outcome tells."""
        return []

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        """Hold an answer against what is possible, but for facts that were `busy` meanwhile."""


@dataclass(frozen=True)
class Part:
    """A record to write, and the fact that it is about."""

    slot: Slot = field(repr=False)
    draft: Fields


@dataclass(frozen=True)
class Remember(Deed):
    """A retry is the same deed again."""

    method = "remember"
    parts: tuple[Part, ...]
    session: str | None

    def params(self) -> Fields:
        default = {} if self.session is None else {"session": self.session}
        return {"records": [part.draft for part in self.parts], **default}

    def about(self) -> Collection[Slot]:
        return {part.slot for part in self.parts}

    @property
    def named(self) -> bool:
        """Whether it may be repeated."""
        return all("id" in part.draft for part in self.parts)

    def heard(self, outcome: Outcome) -> None:
        if outcome.answer is None:
            return
        for part, told in zip(self.parts, outcome.answer["written"], strict=True):
            self.world.know(told["id"], part.slot)
            if told["outcome"] in ("created", "replaced"):
                self.world.written[told["id"], told["revision"]] = outcome.router

    def effects(self, outcome: Outcome) -> Effects:
        found: dict[Slot, list[Effect]] = {}
        for at, part in enumerate(self.parts):
            found.setdefault(part.slot, []).append(self._effect(at, part, outcome))
        return [(slot, in_turn(effects)) for slot, effects in found.items()]

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        if answer["ids"] != [told["id"] for told in answer["written"]]:
            raise ContradictionError(f"a write was answered with {answer}")

    def _effect(self, at: int, part: Part, outcome: Outcome) -> Effect:
        if outcome.answer is None:
            sent = self._sent(at, "", outcome.began, UNBOUNDED)
            # What a crash cut off in the undoing may be undone yet.
            return perhaps(sent.write, sent.unwrite)
        told: Fields = outcome.answer["written"][at]
        sent = self._sent(at, str(outcome.answer["ids"][at]), outcome.began, outcome.ended)

        def agrees(kept: Kept | None) -> bool:
            after = sent.write(kept)
            right = "created" if kept is None else "existing" if after == kept else "replaced"
            revision = after.revision if right == "replaced" else told["revision"]
            # Where a router repeats a lost call, it finds what it has written itself.
            wrote = right if told["outcome"] == "existing" and not outcome.calm else told["outcome"]
            return (wrote, told["revision"], told["id"]) == (right, revision, after.id)

        def change(kept: Kept | None) -> Kept:
            after = sent.write(kept)
            placed = told["outcome"] == "replaced" and sent.tier is not None and told["tier"] == sent.tier
            return replace(after, home=sent.home) if placed else after

        return surely(change, agrees)

    def _sent(self, at: int, told_id: str, began: int, ended: int) -> Sent:
        part = self.parts[at]
        fields = {name: value for name, value in part.draft.items() if name not in ("id", "tier", "salience")}
        fields.setdefault("owner", part.slot.owner)
        fields.setdefault("session", self.session)
        tier = part.draft.get("tier")
        home = tier if tier in DEEP and "group" not in fields else None
        kept = Kept(
            id=part.draft.get("id", told_id),
            sent=json.dumps({name: value for name, value in fields.items() if value is not None}),
            born=(began, ended),
            place=(began, at),
            salience=part.draft.get("salience", 1.0),
            home=home,
        )
        return Sent(kept, tier, "salience" in part.draft)


@dataclass(frozen=True)
class Sent:
    """A record as it becomes where nothing is, and how it changes what is there.

    `tier` is the one that it names, `weighed` whether it has a salience of its own.
    """

    fresh: Kept
    tier: str | None
    weighed: bool

    @property
    def home(self) -> str | None:
        return self.fresh.home

    def write(self, kept: Kept | None) -> Kept:
        if kept is None:
            return self.fresh
        fields = self.fresh.fields
        if "key" not in fields or self.fresh.id in (kept.id, *kept.aliases):
            return kept
        homeless = self.tier is not None or "group" in fields
        return replace(
            kept,
            sent=self.fresh.sent,
            revision=kept.revision + 1,
            salience=self.fresh.salience if self.weighed else kept.salience,
            home=None if homeless else kept.home,
            aliases=kept.aliases | {self.fresh.id},
        )

    def unwrite(self, kept: Kept | None) -> Kept | None:
        """Undo what it created, unless it has changed since."""
        return None if kept == self.fresh else kept


@dataclass(frozen=True)
class Forget(Deed):
    method = "forget"
    selection: Selection

    def params(self) -> Fields:
        return self.selection.params()

    def heard(self, outcome: Outcome) -> None:
        if outcome.answer is not None:
            self.world.forgotten |= dict.fromkeys(outcome.answer["ids"], outcome.router)

    def effects(self, outcome: Outcome) -> Effects:
        if outcome.answer is None:
            return [(slot, perhaps(self._drop(slot))) for slot in self.world.sees(self.owner)]
        gone = frozenset(map(str, outcome.answer["ids"]))
        unknown = {i for i in gone if self.world.named(i) is None}
        return [(slot, self._gone(slot, gone, unknown)) for slot in self.world.sees(self.owner)]

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        if answer["forgotten"] != len(set(answer["ids"])):
            raise ContradictionError(f"a forget counts wrongly: {answer}")
        if strangers := self._foreign(answer):
            raise ContradictionError(f"a forget of {self.owner} took {strangers}")

    def _foreign(self, answer: Fields) -> list[str]:
        seen = self.world.sees(self.owner)
        return [i for i in answer["ids"] if (slot := self.world.named(i)) is not None and slot not in seen]

    def _drop(self, slot: Slot) -> Change:
        return lambda kept: None if kept is not None and self.selection.picks(slot, kept) else kept

    def _gone(self, slot: Slot, gone: Collection[str], unknown: Collection[str]) -> Effect:
        """What a receipt says of a fact: it names what was removed, and so also what was not selected.

        An id that nobody was told is that of a write whose answer was lost.
        """

        def taken(kept: Kept | None) -> bool:
            if kept is None or not self.selection.picks(slot, kept):
                return False
            return (kept.id or slot.assigned) in gone or (kept.id == "" and bool(unknown))

        def agrees(kept: Kept | None) -> bool:
            if any(self.world.named(i) is slot for i in gone):
                return taken(kept)
            return kept is None or taken(kept) or not self.selection.picks(slot, kept)

        return surely(lambda kept: None if taken(kept) else kept, agrees)


@dataclass(frozen=True)
class Promote(Deed):
    method = "promote"
    slot: Slot = field(repr=False)
    id: str
    tier: str
    salience: float

    def params(self) -> Fields:
        return {"ids": [self.id], "tier": self.tier, "salience": self.salience}

    def about(self) -> Collection[Slot]:
        return {self.slot}

    def effects(self, outcome: Outcome) -> Effects:
        groups = self.slot.groups

        def along(kept: Kept | None) -> Kept | None:
            return self._arrived(kept) if kept is not None and kept.fields.get("group") in groups else kept

        mates = [s for s in self.world.slots if s is not self.slot and s.owner == self.slot.owner and groups]
        if outcome.answer is None:
            return [(self.slot, perhaps(self._named)), *((mate, perhaps(along)) for mate in mates)]
        if outcome.answer["promoted"] == 0:
            # A record that leaves its group at that moment stays where it is, and the group goes.
            return [] if outcome.alone else [(mate, either(along)) for mate in mates]
        moved = surely(self._arrived, lambda kept: kept is not None and self._is(kept))
        return [(self.slot, moved), *((mate, either(along)) for mate in mates)]

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        if answer["promoted"] not in (0, 1):
            raise ContradictionError(f"one record was to be promoted, and the answer is {answer}")

    def _is(self, kept: Kept) -> bool:
        return (kept.id or self.slot.assigned) == self.id

    def _named(self, kept: Kept | None) -> Kept | None:
        return self._arrived(kept) if kept is not None and self._is(kept) else kept

    def _arrived(self, kept: Kept | None) -> Kept | None:
        if kept is None:
            return None
        home = self.tier if self.tier in DEEP and "group" not in kept.fields else None
        return replace(kept, salience=kept.salience + self.salience, home=home)


@dataclass(frozen=True)
class Reinforce(Deed):
    method = "reinforce"
    slots: tuple[Slot, ...] = field(repr=False)
    ids: tuple[str, ...]
    amount: float

    def params(self) -> Fields:
        return {"ids": [*self.ids], "amount": self.amount}

    def about(self) -> Collection[Slot]:
        return self.slots

    def effects(self, outcome: Outcome) -> Effects:
        if outcome.answer is None:
            return [(slot, perhaps(self._added(slot))) for slot in self.slots]
        there = outcome.answer["reinforced"]

        def agrees(kept: Kept | None, slot: Slot) -> bool:
            return there not in (0, len(self.slots)) or self._is(slot, kept) == bool(there)

        return [
            (slot, surely(self._added(slot), lambda kept, slot=slot: agrees(kept, slot)))
            for slot in self.slots
        ]

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        found = [{self._is(slot, kept) for kept, _ in slot.states} for slot in self.slots if slot not in busy]
        others = sum(slot in busy for slot in self.slots)
        least, most = found.count({True}), len(found) - found.count({False}) + others
        if not least <= answer["reinforced"] <= most:
            raise ContradictionError(f"{self.ids}: {least} to {most} are there, and the answer is {answer}")

    def _is(self, slot: Slot, kept: Kept | None) -> bool:
        return kept is not None and (kept.id or slot.assigned) in self.ids

    def _added(self, slot: Slot) -> Change:
        return lambda kept: (
            replace(kept, salience=kept.salience + self.amount)
            if kept is not None and self._is(slot, kept)
            else kept
        )


@dataclass(frozen=True)
class Timeline(Deed):
    method = "timeline"
    selection: Selection
    limit: int | None = None

    def params(self) -> Fields:
        return {**self.selection.params(), **({} if self.limit is None else {"limit": self.limit})}

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        shown = self.world.shown(answer["records"], "the timeline")
        _hold(self, shown, self.selection, busy, complete=self.limit is None and "degraded" not in answer)
        if self.limit is not None and len(shown) > self.limit:
            raise ContradictionError(f"{self.limit} records were asked for, and {len(shown)} came")
        _in_order([slot for slot in shown if slot not in busy])


@dataclass(frozen=True)
class Recall(Deed):
    method = "recall"
    selection: Selection
    touch: bool = True

    def params(self) -> Fields:
        return {**self.selection.params(), "limit": 1_000, "touch": self.touch}

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        # Any of the words is enough to be recalled: all are written with the mark.
        shown = self.world.shown(answer["records"], "recall")
        _hold(self, shown, Selection(), busy, complete="degraded" not in answer)


@dataclass(frozen=True)
class Fetch(Deed):
    method = "fetch"
    key: str

    def params(self) -> Fields:
        return {"key": self.key}

    def check(self, answer: Fields, busy: Collection[Slot]) -> None:
        record, complete = answer["record"], "degraded" not in answer
        for owner in dict.fromkeys((self.owner, None)):
            slot = None if owner is False else self.world.at(owner, self.key)
            if record is not None and record.get("owner") == owner:
                if slot is None:
                    raise ContradictionError(f"nobody wrote {record}")
                if slot not in busy:
                    slot.seen(record, "fetch")
                return
            if slot is not None and slot not in busy and complete:
                slot.missed(lambda _: True, "fetch")
        if record is not None:
            raise ContradictionError(f"{self.owner} is shown {record}")


@dataclass(frozen=True)
class Close(Deed):
    method = "session/close"
    session: str

    def params(self) -> Fields:
        return {"session": self.session}


@dataclass(frozen=True)
class Consolidate(Deed):
    method = "consolidate"


def _hold(
    deed: Deed,
    shown: dict[Slot, Fields],
    selection: Selection,
    busy: Collection[Slot],
    *,
    complete: bool,
) -> None:
    """Hold what a read shows, and where it is `complete` what it does not show, against what is possible."""
    seen = deed.world.sees(deed.owner)
    for slot, record in shown.items():
        if slot not in seen:
            raise ContradictionError(f"{deed.method} shows {deed.owner} what is {slot.owner}'s: {record}")
        if slot not in busy:
            slot.seen(record, deed.method, more=lambda kept, slot=slot: selection.picks(slot, kept))
    for slot in seen:
        if complete and slot not in shown and slot not in busy:
            slot.missed(lambda kept, slot=slot: selection.picks(slot, kept), deed.method)


def _in_order(slots: Sequence[Slot]) -> None:
    """Raise where a record comes before one that was written before it."""

    def born(slot: Slot, end: int) -> list[int]:
        return [kept.born[end] for kept in slot.kept()]

    for at, slot in enumerate(slots):
        for later in slots[at + 1 :]:
            batches = {kept.place[0] for kept in (*slot.kept(), *later.kept())}
            turned = len(batches) == 1 and slot.kept()[0].place > later.kept()[0].place
            if turned or max(born(later, 1)) < min(born(slot, 0)):
                raise ContradictionError(
                    f"{slot.name} is shown before {later.name}, which was written before it"
                )
