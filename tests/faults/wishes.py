"""What a test may draw, and the calls that it becomes: numbers pick among what there is by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import uuid4

from deeds import (
    Close,
    Consolidate,
    Deed,
    Fetch,
    Forget,
    Part,
    Promote,
    Recall,
    Reinforce,
    Remember,
    Timeline,
)
from hypothesis import strategies as st
from possible import Slot
from world import Owner, Selection, World

WORDS = ("plum", "pear", "fig")
KINDS = ("a", "b")
TIERS = ("working", "episodic", "semantic", "procedural")


@dataclass(frozen=True)
class Wish:
    """Something to ask for; `deed` is None where there is nothing to ask it of."""

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        raise NotImplementedError


@dataclass(frozen=True)
class Record:
    """A record to write; `key` and `group` are numbers."""

    word: str = "plum"
    kind: str = "a"
    role: str = "user"
    named: bool = True
    key: int | None = None
    group: int | None = None
    tier: str | None = None
    salience: float | None = None
    vector: bool = False

    def draft(self, world: World) -> dict[str, Any]:
        name = uuid4().hex[:8]
        draft: dict[str, Any] = {
            "content": f"{world.mark} {self.word} {name}",
            "role": self.role,
            "metadata": {"mark": world.mark, "kind": self.kind, "n": [1, 1.0, None, {"é": -0.0}]},
        }
        if self.named or self.key is not None:
            draft["id"] = f"{world.mark}/{name}"
        if self.key is not None:
            draft["key"] = world.keys[self.key]
        if self.group is not None:
            draft["group"] = world.groups[self.group]
        if self.vector:
            draft["embedding"] = [0.25, -0.5, 1.0]
        return draft | {n: v for n in ("tier", "salience") if (v := getattr(self, n)) is not None}


@dataclass(frozen=True)
class Write(Wish):
    """Write records of one owner; an `outsider` sees everything and names the owner in each."""

    owner: int
    session: int
    records: tuple[Record, ...]
    outsider: bool = False

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        owner = world.owners[self.owner]
        drafts = [record.draft(world) for record in self.records]
        if self.outsider:
            drafts = [{**draft, "owner": owner} for draft in drafts]
        parts = tuple(Part(world.slot(owner, draft), draft) for draft in drafts)
        return Remember(world, False if self.outsider else owner, parts, world.sessions[self.session])


@dataclass(frozen=True)
class Again(Wish):
    """Repeat a write of any time ago, as after a lost response."""

    pick: int

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        return said[self.pick % len(said)] if said else None


@dataclass(frozen=True)
class ForgetIds(Wish):
    picks: tuple[int, ...]

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        slots = [_pick(world, pick) for pick in self.picks]
        ids = [i for slot in slots if slot is not None for i in _ids(slot)]
        return Forget(world, False, Selection(ids=tuple(dict.fromkeys(ids)))) if ids else None


@dataclass(frozen=True)
class ForgetWhere(Wish):
    """Forget by words, by session, by metadata or by keys, and by whose it is."""

    owner: int | None
    by: str
    which: int

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        mark = ("mark", world.mark)
        match self.by:
            case "query":
                selection = Selection(words=f"{world.mark} {WORDS[self.which]}")
            case "session":
                selection = Selection(where=(("session", world.sessions[self.which]), mark))
            case "owner":
                selection = Selection(where=(("owner", world.owners[self.which]), mark))
            case "kind":
                selection = Selection(where=(("kind", KINDS[self.which % 2]), mark))
            case "group":
                selection = Selection(where=(("group", world.groups[self.which % 2]),))
            case _:
                selection = Selection(prefix=world.keys[self.which])
        return Forget(world, _owner(world, self.owner), selection)


@dataclass(frozen=True)
class Rise(Wish):
    """Promote one record to any tier: the one at a place (owner and key), else one by number."""

    pick: int
    tier: str
    salience: float
    place: tuple[int, int] | None = None

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        if self.place is None:
            slot = _pick(world, self.pick)
        else:
            slot = world.at(world.owners[self.place[0]], world.keys[self.place[1]])
        ids = [] if slot is None else _ids(slot)
        if slot is None or not ids:
            return None
        return Promote(world, slot.owner, slot, ids[0], self.tier, self.salience)


@dataclass(frozen=True)
class Praise(Wish):
    """Reinforce some records."""

    picks: tuple[int, ...]
    amount: float

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        found = {slot: ids[0] for p in self.picks if (slot := _pick(world, p)) and (ids := _ids(slot))}
        return Reinforce(world, False, (*found,), (*found.values(),), self.amount) if found else None


@dataclass(frozen=True)
class Look(Wish):
    """Read a session's timeline, or everything's."""

    owner: int | None
    session: int | None
    limit: int | None = None

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        where: list[tuple[str, Any]] = []
        if self.session is not None:
            where.append(("session", world.sessions[self.session]))
        if self.session is None or world.sessions[self.session] is None:
            where.append(("mark", world.mark))
        return Timeline(world, _owner(world, self.owner), Selection(where=tuple(where)), self.limit)


@dataclass(frozen=True)
class Think(Wish):
    """Recall everything by the word that all contents have."""

    owner: int | None
    touch: bool = True

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        world.recalls += self.touch
        return Recall(world, _owner(world, self.owner), Selection(words=world.mark), self.touch)


@dataclass(frozen=True)
class Ask(Wish):
    """Fetch what is at a key."""

    owner: int
    key: int

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        return Fetch(world, world.owners[self.owner], world.keys[self.key])


@dataclass(frozen=True)
class End(Wish):
    """Close a session."""

    owner: int | None
    session: int

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        return Close(world, _owner(world, self.owner), str(world.sessions[self.session]))


@dataclass(frozen=True)
class Tidy(Wish):
    """Consolidate."""

    def deed(self, world: World, said: Sequence[Remember]) -> Deed | None:
        return Consolidate(world, False)


def _owner(world: World, number: int | None) -> Owner:
    return False if number is None else world.owners[number]


def _pick(world: World, number: int) -> Slot | None:
    """A fact that may be there, else one that is not; the latest is number 0."""
    slots = [slot for slot in world.slots if slot.kept()] or world.slots
    return slots[-1 - number % len(slots)] if slots else None


def _ids(slot: Slot) -> list[str]:
    return [i for kept in slot.kept() if (i := kept.id or slot.assigned)]


def _record(
    text: tuple[str, str, str],
    more: tuple[int | None, float | None, bool],
    place: tuple[int | None, str | None] = (None, None),
    named: bool = True,
) -> Record:
    word, kind, role = text
    group, salience, vector = more
    key, tier = place
    return Record(word, kind, role, named, key, group, tier, salience, vector)


# Few draws a record: an example has room for a few thousand.
_PICKS = st.integers(0, 63)
_OWNERS = st.sampled_from((0, 0, 1, 2))
_SCOPES = st.sampled_from((0, 0, 1, 2, None))
_TEXTS = st.sampled_from([*product(WORDS, KINDS, ("user", "tool"))])
_MORE = st.sampled_from([*product((None, None, 0, 1), (None, None, 2.5), (False, False, False, True))])
_PLACES = st.sampled_from([*product((None, None, 0, 1, 2), (None, None, None, *TIERS))])
_KEYS = st.sampled_from([*product((0, 1, 2), (None, None, None, None, *TIERS))])


def _lists(records: st.SearchStrategy[Record]) -> st.SearchStrategy[tuple[Record, ...]]:
    return st.lists(records, min_size=1, max_size=3).map(tuple)


TURNS = st.builds(
    Write,
    owner=_OWNERS,
    session=st.sampled_from((0, 0, 1, 2)),
    records=_lists(st.builds(_record, _TEXTS, _MORE, named=st.booleans())),
    outsider=st.booleans(),
)
PLACED = st.builds(
    Write,
    owner=_OWNERS,
    session=st.sampled_from((0, 1, 2)),
    records=_lists(st.builds(_record, _TEXTS, _MORE, _PLACES, st.booleans())),
)
REWRITES = st.builds(
    Write,
    owner=_OWNERS,
    session=st.sampled_from((0, 1)),
    records=st.tuples(st.builds(_record, _TEXTS, _MORE, _KEYS)),
)
RETRIES = st.builds(Again, _PICKS)
FORGETS = st.one_of(
    st.builds(ForgetIds, st.lists(_PICKS, min_size=1, max_size=3).map(tuple)),
    st.builds(
        ForgetWhere,
        _SCOPES,
        st.sampled_from(("query", "session", "owner", "kind", "group", "key")),
        st.integers(0, 2),
    ),
)
RISES = st.builds(Rise, _PICKS, st.sampled_from(TIERS), st.sampled_from((0.0, 0.5)))
PRAISES = st.builds(Praise, st.lists(_PICKS, min_size=1, max_size=3).map(tuple), st.sampled_from((1.0, -0.5)))
LOOKS = st.builds(Look, _SCOPES, st.sampled_from((0, 0, 1, 2, None)), st.sampled_from((None, None, None, 3)))
THOUGHTS = st.builds(Think, _SCOPES)
QUESTIONS = st.builds(Ask, _OWNERS, st.integers(0, 2))
ENDS = st.builds(End, _SCOPES, st.integers(0, 1))
TIDYING = st.just(Tidy())


def _race(place: tuple[int, int]) -> st.SearchStrategy[list[Wish]]:
    """Several calls about what is at one key."""
    owner, key = place
    write = st.builds(
        Write,
        owner=st.just(owner),
        session=st.sampled_from((0, 1)),
        records=st.tuples(
            st.builds(_record, _TEXTS, _MORE, st.tuples(st.just(key), st.sampled_from((None, *TIERS))))
        ),
    )
    forget = st.just(ForgetWhere(owner, "key", key))
    rise = st.builds(Rise, st.just(0), st.sampled_from(TIERS), st.just(0.5), st.just(place))
    ask = st.just(Ask(owner, key))
    wishes = st.one_of(write, write, write, rise, rise, forget, ask, RETRIES, THOUGHTS, ENDS)
    return st.lists(wishes, min_size=2, max_size=4)


RACES = st.tuples(_OWNERS, st.integers(0, 2)).flatmap(_race)
MOVES_SEEN = st.tuples(
    st.lists(st.one_of(RISES, ENDS, TIDYING), min_size=1, max_size=2),
    st.lists(st.one_of(LOOKS, LOOKS, QUESTIONS), min_size=1, max_size=2),
).map(lambda both: [*both[0], *both[1]])
MOVES = st.one_of(RISES, ENDS, TIDYING, REWRITES, RETRIES)
"""What crosses tiers."""
ANYTHING = st.one_of(
    TURNS, PLACED, REWRITES, RETRIES, FORGETS, RISES, PRAISES, LOOKS, THOUGHTS, QUESTIONS, ENDS, TIDYING
)
