"""What is pending, looked at again: approved by somebody, or because others say the same.

Two records say the same when they have the same words and signs in the same order, of the same thing. They do
so independently when they name different sources or, where one names none, come from different sessions, and
neither was derived from the other, or both from a third. A contradiction of a fact that has its key is kept
beside it, without a key, and takes its place when it is approved.
"""

from __future__ import annotations

import hashlib
import logging
import random
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from a2m_protocol.errors import A2MError, scope_denied
from a2m_protocol.types import EVIDENCE, Draft, Provenance, Record, Status
from a2m_retrieval.text import fold, query_words
from a2m_router import merge
from a2m_router.belief import Belief, Rule, sources_of
from a2m_router.coordination import Locks, Readers, entry_locks
from a2m_router.counts import Counts
from a2m_router.listing import PAGE, any_of, every_entry, first_entries, group_members
from a2m_router.policy import Unit
from a2m_router.repair import Repairer
from a2m_router.tiers import Member, Tiers, ask, ask_all
from a2m_router.writes import Placer
from a2m_server.origins import inherited
from a2m_server.records import is_callers
from a2m_server.values import EVERYONE, Entry, Filter, Judged, Page, Scope

ATTEMPTS = 5
CHECKED = 25
"""Records of a tier for which one sweep looks for evidence."""
LOOKED = 100
"""The newest records of a tier with all words of another that are looked at."""
MOST_WORDS = 100
"""Words of a record from which on nobody but a curator approves it."""

TELLING = 3
"""Words that say something by themselves: fewer, such as a yes, are evidence of a fact at its key alone."""
CLOSING = ".,;:!\u3001\u3002"
"""What a word may end in and be the same."""

COPIED = ("content", "role", "metadata", "session", "owner", "uri", "media_type")
"""What a fact has of the record that contradicted it: not its group, whose lock it is written without."""

log = logging.getLogger(__name__)


class Reviewer:
    """Finds evidence, and approves."""

    def __init__(
        self,
        tiers: Tiers,
        locks: Locks,
        readers: Readers,
        repairer: Repairer,
        placer: Placer,
        belief: Belief,
        counts: Counts,
    ) -> None:
        self._tiers = tiers
        self._locks = locks
        self._readers = readers
        self._repairer = repairer
        self._placer = placer
        self._belief = belief
        self._counts = counts
        self._reached: dict[str, tuple[int, str]] = {}

    async def approve(self, ids: Sequence[str], scope: Scope, by: str) -> dict[str, str | None]:
        """Let pending records of `ids` be believed; those that were, each with its owner."""
        selected = Filter(scope, ids=tuple(dict.fromkeys(ids)), statuses=("pending",))
        approved: dict[str, str | None] = {}
        for member, records in await self._held(selected):
            for record in records:
                if await self._approve(record, member, by):
                    approved[record.id] = record.owner
        self._counts.reviewed.labels("approved").inc(len(approved))
        return {i: approved[i] for i in ids if i in approved}

    async def review(self) -> None:
        """Look for evidence of some of the pending records of each tier, others each time."""
        if not self._belief.doubts:
            return
        for member in self._tiers.movable():
            after = self._reached.pop(member.name, None)
            pending = Filter(EVERYONE, statuses=("pending",))
            entries = await first_entries(member.store, pending, CHECKED, after)
            if len(entries) == CHECKED:
                self._reached[member.name] = (entries[-1].seq, entries[-1].id)
            for record in await _read(member, entries):
                try:
                    await self._look(record, member)
                except A2MError as error:
                    if error.retryable:
                        raise
                    # It is the record's own; others are not to wait for it.
                    log.warning("a pending record in %s cannot be believed: %s", member.name, error.message)

    async def admitted(self, moving: Sequence[Unit], source: Member, target: Member) -> list[Unit]:
        """The units that a tier takes in as what may be believed; of many, some are looked at each time."""
        if not self._belief.asks(target.name):
            return [*moving]
        some = [*moving] if len(moving) <= CHECKED else random.sample(moving, CHECKED)
        entries = {entry.id: entry for unit in some for entry in unit.entries}
        members = await group_members(source.store, entries.values())
        groups: dict[tuple[str | None, str | None], set[str]] = {}
        for entry in members:
            groups.setdefault((entry.owner, entry.group), set()).add(entry.id)
        records = await _read(source, {**entries, **{entry.id: entry for entry in members}}.values())
        believed = {record.id for record in records if await self._admits(record, target)}
        return [unit for unit in some if _whole(unit, groups) <= believed]

    async def check_promoted(self, selected: Filter, target: Member) -> None:
        """Raise -32005 where a tier would take in a record that is not to be believed yet."""
        if not self._belief.asks(target.name):
            return
        for member, records in await self._held(selected):
            # Whole groups go.
            others = {entry.id: entry for entry in await group_members(member.store, records)}
            named = {record.id for record in records}
            whole = [*records, *await _read(member, [e for i, e in others.items() if i not in named])]
            moving = [] if member is target else whole
            held = [record.id for record in moving if not await self._admits(record, target)]
            if held:
                raise scope_denied(
                    f"ids: the policy of {target.name} does not let in {len(held)} of them yet, such as "
                    f"{held[0]!r}: have a curator write there what is to be believed"
                )

    async def _admits(self, record: Record, target: Member) -> bool:
        """Whether a record may enter as what is believed; evidence that is found for it is noted."""
        rule = self._belief.rule(record, target.name)
        if record.status != "active" or rule is Rule.CLOSED:
            return False
        if rule is Rule.OPEN:
            return True
        return await self._corroborated(record) and await self._judge(record, "active", EVIDENCE)

    async def _look(self, record: Record, member: Member) -> None:
        if record.status != "pending":
            return
        home, fact = await self._contested(record) or (member, None)
        by = record.provenance.approved if record.provenance is not None else None
        if fact is not None and _settles(fact, record):
            if await self._judge(record, "superseded", None):
                self._counts.reviewed.labels("settled").inc()
        elif by is not None:
            await self._approve(record, member, by)
        elif self._belief.rule(record.model_copy(update={"key": _about(record)}), home.name) is Rule.CLOSED:
            # Its group brought it there, or the policy came later: somebody has to decide.
            return
        elif await self._corroborated(record) and await self._approve(record, member, EVIDENCE):
            self._counts.reviewed.labels("corroborated").inc()

    async def _approve(self, record: Record, member: Member, by: str) -> bool:
        key = record.provenance.contests if record.provenance is not None else None
        if key is None:
            return await self._judge(record, "active", by)
        # Noted first, so that what is cut short here is ended by the next sweep, and what is forgotten by now
        # is not brought back.
        if not await self._judge(record, "pending", by):
            return False
        fact = _fact(record, key, member, by)
        waits = Filter(EVERYONE, ids=(record.id,), statuses=("pending",))

        async def still() -> bool:
            return any(records for _, records in await self._held(waits))

        if not await self._placer.write([fact], EVERYONE, also=entry_locks(record), still=still):
            return False
        await self._judge(record, "superseded", by)
        return True

    async def _judge(self, record: Record, status: Status, by: str | None) -> bool:
        """Set the status of a record wherever it is, whatever was counted on it meanwhile.

        No move of it is under way then, or was left by a router that died, of which one might undo that.
        """
        await self._repairer.settle([record.id])
        async with self._locks.hold(entry_locks(record)):
            for _ in range(ATTEMPTS):
                found = await self._held(Filter(EVERYONE, ids=(record.id,)))
                here = [(member, now) for member, records in found for now in records]
                for member, now in here:
                    if (now.content, now.status) != (record.content, record.status):
                        return False
                    done = await member.store.judge([Judged(now.id, now.etag, status, by)])
                    if done.get(now.id):
                        return True
                if not here:
                    return False
        return False

    async def _contested(self, record: Record) -> tuple[Member, Record] | None:
        """The fact that a record contradicts, and where it is."""
        key = record.provenance.contests if record.provenance is not None else None
        if key is None:
            return None
        found = await self._held(Filter(EVERYONE, any_of("key", [key], "owner", [record.owner])))
        return next(((member, fact) for member, facts in found for fact in facts), None)

    async def _corroborated(self, record: Record) -> bool:
        """Whether enough others say the same; a tier that is silent gives no evidence."""
        words = tuple(dict.fromkeys(query_words(record.content)))
        if not 0 < len(words) <= MOST_WORDS:
            return False
        selected = Filter(Scope.of(record.owner), words=words, statuses=("active", "pending"))
        with self._readers.reading():
            answers, _ = await ask(
                self._tiers.movable(), lambda member: member.store.timeline(Page(selected, LOOKED))
            )
        said = [*merge.distinct({tier: found.records for tier, found in answers.items()}).values()]
        trust = self._belief.trust
        return witnesses(record, (one for one in said if trust.of(one) > 0)) >= trust.corroboration

    async def _held(self, selected: Filter) -> list[tuple[Member, list[Record]]]:
        """Matching records, each in the tier that has it; every tier must answer."""
        members = {member.name: member for member in self._tiers.movable()}
        with self._readers.reading():
            entries = await ask_all([*members.values()], lambda member: every_entry(member.store, selected))
            here = merge.furthest(entries)
            read = await ask_all(
                [members[tier] for tier in here], lambda member: _read(member, here[member.name])
            )
        return [(members[tier], records) for tier, records in read.items()]


def witnesses(record: Record, said: Iterable[Record]) -> int:
    """From how many origins beside its own `said` says what a record says.

    Records that may have it from each other, directly or by way of others, are of one origin.
    """
    origins: list[list[Record]] = []
    for one in [record, *(other for other in said if says_the_same(record, other))]:
        own = [origin for origin in origins if not all(independent(one, other) for other in origin)]
        apart = [origin for origin in origins if origin not in own]
        origins = [*apart, [one, *(other for origin in own for other in origin)]]
    return len(origins) - 1


def says_the_same(one: Record, other: Record) -> bool:
    """Whether two records have the same words and signs in the same order, of the same thing.

    Case, spaces and how a word closes do not matter. What has a key is of the same thing as what has that key
    and, where it says something by itself, as what has none.
    """
    if one.uri != other.uri or _wording(one.content) != _wording(other.content):
        return False
    mine, theirs = _about(one), _about(other)
    return mine == theirs or (None in (mine, theirs) and len(query_words(one.content)) >= TELLING)


def _wording(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word.rstrip(CLOSING) or word for word in folded.split()]


def _about(record: Record) -> str | None:
    """The key of what a record says something of."""
    return record.key or (record.provenance or Provenance()).contests


def independent(one: Record, other: Record) -> bool:
    """Whether two records do not have what they say from each other, as far as their provenance tells."""
    if _line(one) & _line(other):
        return False
    # Nobody is another for writing his name otherwise.
    mine, theirs = ({fold(s).strip() for s in sources_of(r.provenance or Provenance())} for r in (one, other))
    if mine and theirs:
        return not mine & theirs
    return None not in (one.session, other.session) and one.session != other.session


def _line(record: Record) -> set[str]:
    """The ids of a record and of all that it was derived from."""
    origin = record.provenance or Provenance()
    return {record.id, *(origin.derived_from or ()), *(origin.ancestors or ())}


def _settles(fact: Record, record: Record) -> bool:
    """Whether the fact at a key is what a record said in its stead: nothing is left to decide."""
    origin = fact.provenance or Provenance()
    derived = record.id in (origin.derived_from or ())
    return fact.status == "active" and (derived or says_the_same(fact, record))


def _fact(record: Record, key: str, member: Member, by: str) -> Draft:
    """The fact that a record becomes where it contradicted another.

    Its id is always the same: written again after it was cut short, it does not undo what was written since.
    """
    update = {"contests": None, "approved": by, "derived_from": [record.id]}
    origin = inherited((record.provenance or Provenance()).model_copy(update=update), [record])
    fields: dict[str, object] = {name: getattr(record, name) for name in COPIED}
    if is_callers(record):
        fields["embedding"] = record.embedding
    fact_id = hashlib.sha256(f"{record.seq} {record.id}".encode()).hexdigest()[:32]
    given = {"id": fact_id, "key": key, "tier": member.name}
    return Draft.model_validate({**fields, **given, "provenance": origin})


def _whole(unit: Unit, groups: Mapping[tuple[str | None, str | None], set[str]]) -> set[str]:
    """The ids of a unit, with those of its group that are not among what was earned."""
    first = unit.entries[0]
    others = groups.get((first.owner, first.group), set()) if first.group is not None else set[str]()
    return {*unit.ids} | others


async def _read(member: Member, entries: Iterable[Entry]) -> list[Record]:
    ids = [entry.id for entry in entries]
    parts = [await member.store.read(ids[at : at + PAGE]) for at in range(0, len(ids), PAGE)]
    return [record for part in parts for record in part]
