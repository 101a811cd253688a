"""What may be seen and held, given what was done and when: the memory as one register a thing.

A deed that has returned took effect between its beginning and its end. One that has not, because it is still
under way, failed or died, took effect at some time after its beginning, or never. A read may show whatever
some such order allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from explorer import Violation

from a2m_protocol.types import Draft, Record


@dataclass(frozen=True, slots=True)
class Fact:
    """A thing that is held: its record's id and content, how often it was rewritten, and by which ids."""

    id: str
    content: str
    revision: int = 0
    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """What is held of a thing, if anything, and whether a forget forbids that an import brings it."""

    fact: Fact | None = None
    forbidden: bool = False


Change = Callable[[State], State]


@dataclass(slots=True)
class Deed:
    """Something that changes a thing; `after` are the deeds that had returned when it began."""

    thing: str
    change: Change
    after: frozenset[int]
    forgets: bool = False
    ended: bool = False


@dataclass(slots=True)
class Read:
    """What a read showed of some things; `known` are the deeds that had begun when it ended."""

    things: tuple[str, ...]
    after: frozenset[int]
    known: frozenset[int] = frozenset()
    shown: list[Record] = field(default_factory=list[Record])
    _: KW_ONLY
    ordered: bool = False
    ended: bool = False


def forgotten(_: State) -> State:
    return State(None, forbidden=True)


def forgotten_where(word: str) -> Change:
    """The change of a forget that selects what holds a word."""

    def change(state: State) -> State:
        return forgotten(state) if state.fact is not None and word in state.fact.content else state

    return change


def written(draft: Draft) -> Change:
    """The change of a write: new, a retry, or the rewrite of a key."""

    def change(state: State) -> State:
        fact = state.fact
        if fact is None:
            return replace(state, fact=Fact(draft.id, draft.content, known=frozenset({draft.id})))
        if draft.id in fact.known:
            return state
        known = fact.known | {draft.id}
        return replace(state, fact=Fact(fact.id, draft.content, fact.revision + 1, known))

    return change


def imported(draft: Draft) -> Change:
    """The change of a transfer of what a client took out once: it is old, whenever it comes."""
    write = written(draft)
    return lambda state: state if state.forbidden or state.fact is not None else write(state)


def possible(start: State, deeds: Sequence[Deed], thing: str, read: Read) -> set[State]:
    """The states of a thing that `read` may show."""
    mine = {at for at, deed in enumerate(deeds) if deed.thing == thing}
    required = mine & read.after
    optional = mine & read.known

    def orders(state: State, done: frozenset[int]) -> Iterator[State]:
        if required <= done:
            yield state
        for at in optional - done:
            if deeds[at].after & mine <= done:
                yield from orders(deeds[at].change(state), done | {at})

    return {*orders(start, frozenset())}


def check_read(start: State, deeds: Sequence[Deed], thing: str, ids: frozenset[str], read: Read) -> None:
    """Raise a `Violation` where `read` shows of `thing` what no order of the deeds allows."""
    states = possible(start, deeds, thing, read)
    shown = [record for record in read.shown if record.id in ids]
    if len(shown) > 1:
        raise Violation(f"I2: {[record.id for record in shown]} were shown at once")
    facts = [state.fact for state in states]
    if not shown:
        if None not in facts:
            raise Violation(f"I1: {thing} was not shown")
        return
    [record] = shown
    if not any(facts):
        raise Violation(f"I3: {record.id} was shown, though it is forgotten")
    if not any(fact and (fact.id, fact.content) == (record.id, record.content) for fact in facts):
        raise Violation(f"I4: {record.id} was shown as {record.content!r}")
