"""A federation at rest, held against what is possible: in each tier itself, and over a router."""

from __future__ import annotations

from collections import Counter, defaultdict

from caller import Caller
from deeds import Deed, Fetch, Recall, Timeline
from harness import TIERS, Federation
from possible import ContradictionError, Fields, Kept, Slot
from world import Selection, World


def audit(world: World, federation: Federation, router: Caller) -> None:
    """Raise `ContradictionError` for what is not as it was told; afterwards every fact is in one state."""
    now = world.moment()
    for slot in world.slots:
        slot.settle(now)
    found = _tiers(world, federation)
    for deed in _reads(world):
        answer = router.call(deed.method, **deed.sent())
        if "degraded" in answer:
            raise ContradictionError(f"at rest, {deed} answers {answer['degraded']}")
        deed.check(answer, ())
    _counts(world, router, found)


def _tiers(world: World, federation: Federation) -> dict[Slot, tuple[str, Fields]]:
    """Each record in one tier alone, whole, its group with it; working within its capacity."""
    found: dict[Slot, tuple[str, Fields]] = {}
    for tier in TIERS:
        listed = federation.tiers[tier].entries(where={"mark": world.mark})
        ids = [*dict.fromkeys([*world.ids(), *(entry["id"] for entry in listed)])]
        for record in federation.tiers[tier].call("read", ids=ids)["records"] if ids else ():
            slot = world.of(record)
            if slot in found:
                raise ContradictionError(f"I2: {slot.name} is in {found[slot][0]} and in {tier}: {record}")
            found[slot] = tier, record
            if record.get("arrival") is not None:
                raise ContradictionError(f"{slot.name} in {tier} is still marked as arriving: {record}")
            # A recall under way counts twice on what is promoted upwards meanwhile.
            if record.get("access_count", 0) > 2 * world.recalls:
                raise ContradictionError(f"{world.recalls} recalls were made, and {tier} counts {record}")
            slot.seen(record, tier, more=lambda kept, tier=tier, record=record: _whole(tier, kept, record))
    for slot in world.slots:
        if slot not in found:
            slot.missed(lambda _: True, "no tier")
    groups: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    crowds: Counter[tuple[str | None, str | None]] = Counter()
    for slot, (tier, record) in found.items():
        if "group" in record:
            groups[slot.owner, record["group"]].add(tier)
        crowds[slot.owner, record.get("session")] += tier == "working"
    for (owner, group), tiers in groups.items():
        if len(tiers) > 1:
            members = [
                held for slot, held in found.items() if (slot.owner, held[1].get("group")) == (owner, group)
            ]
            raise ContradictionError(f"I5: {owner}'s {group} is parted: {members}")
    if crowded := {bucket: count for bucket, count in crowds.items() if count > federation.capacity}:
        raise ContradictionError(f"working holds more than its capacity of {crowded}")
    return found


def _whole(tier: str, kept: Kept, record: Fields) -> bool:
    """Whether a record that a tier itself shows agrees with one that may be there."""
    return (
        record.get("salience", 1.0) == kept.salience
        and record.get("embedding") == kept.fields.get("embedding")
        and kept.home in (None, tier)
    )


def _reads(world: World) -> list[Deed]:
    """Everything that there is to read, by everybody who may."""
    marked = ("mark", world.mark)
    ana, bob, _ = world.owners
    stranger = f"eve-{world.mark}"
    reads: list[Deed] = [
        Timeline(world, owner, Selection(where=(marked,))) for owner in (ana, bob, stranger, False)
    ]
    reads += [
        Timeline(world, owner, Selection(where=(("session", session), marked)))
        for owner in (ana, False)
        for session in world.sessions
    ]
    words = Selection(words=world.mark)
    reads += [Recall(world, owner, words, touch=False) for owner in (ana, stranger, False)]
    reads += [Fetch(world, owner, key) for owner in world.owners for key in world.keys]
    return reads


def _counts(world: World, router: Caller, found: dict[Slot, tuple[str, Fields]]) -> None:
    """The sessions as they are listed."""
    owner = world.owners[0]
    counted: Counter[tuple[str, str]] = Counter()
    for slot, (tier, record) in found.items():
        if slot.owner == owner and "session" in record:
            counted[record["session"], tier] += 1
    listed = {
        (info["session"], tier): count
        for info in router.call("session/list", owner=owner)["sessions"]
        if info.get("owner") == owner
        for tier, count in info["tiers"].items()
    }
    if listed != counted:
        raise ContradictionError(f"sessions are listed as {listed}, and are {dict(counted)}")
