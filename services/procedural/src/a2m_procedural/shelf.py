"""The records at the tip of the branch, read again when it moves or when the journal changes."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from a2m_procedural.catalogue import Catalogue, Shelved, path_digest, persons
from a2m_procedural.journal import Journal, State
from a2m_procedural.names import folder_of, folder_part
from a2m_procedural.repository import Repository
from a2m_protocol.clock import SEQ_PER_MS
from a2m_protocol.types import Record
from a2m_server.ledger import Ledger
from a2m_server.sequence import AHEAD
from a2m_server.values import Tombstone

log = logging.getLogger(__name__)

TASK_FIELDS = ("task", "task_type", "tags", "name", "title")


@dataclass(frozen=True, slots=True)
class View:
    """All records at one commit and one version of the journal; nothing in it is changed later.

    `hidden` has the files that a tombstone outweighs, by the id of what they hold, the newest first.
    """

    head: str | None
    version: int
    shelved: Mapping[str, Shelved]
    hidden: Mapping[str, Sequence[Shelved]]
    ledger: Ledger
    occupied: frozenset[str]
    width: int | None

    def terms(self) -> dict[str, tuple[str, ...]]:
        return {record_id: shelved.page.terms for record_id, shelved in self.shelved.items()}


class Shelf:
    """One thread's view of a repository and its journal."""

    def __init__(self, repository: Repository, journal: Journal, catalogue: Catalogue) -> None:
        self._repository = repository
        self._journal = journal
        self._catalogue = catalogue
        self._states: dict[str, State] = {}
        self._view: View | None = None

    def view(self, now_ms: int) -> View:
        head = self._repository.head()
        version = self._journal.version()
        view = self._view
        if view is None or (view.head, view.version) != (head, version):
            view = self._view = self._load(head, version, now_ms)
        return view

    def _load(self, head: str | None, version: int, now_ms: int) -> View:
        found, occupied = self._catalogue.at(self._repository, head)
        stones = self._journal.tombstones([s.record.id for s in found], now_ms)
        hidden = [s for s in found if _gone(s.record, stones.get(s.record.id))]
        shelved = settle([s for s in found if not _gone(s.record, stones.get(s.record.id))])
        stones = self._journal.tombstones(shelved, now_ms)
        hidden += [s for i, s in shelved.items() if _gone(s.record, stones.get(i))]
        shelved = {i: s for i, s in shelved.items() if not _gone(s.record, stones.get(i))}
        self._refresh_states()
        ledger = Ledger(elsewhere=self._journal.elsewhere())
        for record_id, one in shelved.items():
            ledger.keep(_whole(one, self._states.get(record_id)))
        # A date from the future in a person's commit must not carry every later write along, nor its session.
        now = (now_ms + 1) * SEQ_PER_MS
        seqs = (record.seq for record in ledger.records.values() if record.seq < now)
        ledger.last = max(self._journal.last(), *seqs, 0)
        ledger.latest = {at: seq for at, seq in ledger.latest.items() if now <= seq < now + AHEAD}
        return View(head, version, shelved, _by_id(hidden), ledger, occupied, self._journal.width())

    def _refresh_states(self) -> None:
        marks = self._journal.marks()
        kept = {i: s for i, s in self._states.items() if marks.get(i) == (s.etag, s.arrival)}
        self._states = kept | {s.id: s for s in self._journal.states(i for i in marks if i not in kept)}


def _by_id(hidden: Iterable[Shelved]) -> dict[str, list[Shelved]]:
    grouped: dict[str, list[Shelved]] = {}
    for one in sorted(hidden, key=lambda s: (-s.record.seq, s.path)):
        grouped.setdefault(one.record.id, []).append(one)
    return grouped


def settle(found: Iterable[Shelved]) -> dict[str, Shelved]:
    """One record an id and one an owner's key; a copy that a person made counts as a skill of theirs.

    Of several files with an id the newest is the original, then the one in the folder that the id's record
    gets, then the first by path.
    """
    every = list(found)
    ours = [s for s in every if s.page.skill.fields is not None]
    ours.sort(key=lambda s: (-s.record.seq, not _at_home(s), s.path))
    taken: dict[str, Shelved] = {}
    keys: set[tuple[str | None, str | None]] = {(None, None)}
    rest = [s for s in every if s.page.skill.fields is None]
    for one in ours:
        address = (one.record.owner, one.record.key)
        if one.record.id in taken or (one.record.key is not None and address in keys):
            rest.append(replace(one, record=_copied(one)))
        else:
            taken[one.record.id] = one
            keys.add(address)
    aliases = {alias for one in taken.values() for alias in one.record.aliases}
    for one in sorted(rest, key=lambda s: s.path):
        record = one.record
        update: dict[str, str | None] = {}
        if record.id in taken or record.id in aliases:
            update["id"] = f"skill/{path_digest(one.path).hex()}"
        if record.key is not None and (record.owner, record.key) in keys:
            update["key"] = None
        record = record.model_copy(update=update)
        if record.id not in taken:
            taken[record.id] = replace(one, record=record)
            keys.add((record.owner, record.key))
    return taken


def digest_of(content: str) -> str:
    """What ties a vector to the text that it was made of."""
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def _whole(shelved: Shelved, state: State | None) -> Record:
    """A record with its counts, and with its vector if that is still one of this content."""
    record = shelved.record
    if state is None:
        return record
    update: dict[str, object] = {
        "etag": state.etag if state.file == shelved.page.file else f"{state.etag}.{shelved.page.file}",
        "salience": state.salience,
        "access_count": state.access_count,
        "accessed_at": state.accessed_at,
        "arrival": state.arrival,
    }
    if state.content == digest_of(record.content):
        update |= {
            "embedding": state.embedding,
            "embedding_model": state.embedding_model,
            "features": state.features,
        }
    return record.model_copy(update=update)


def _gone(record: Record, stone: Tombstone | None) -> bool:
    """Whether a file is what a forget or a move took away, back by a reset of the branch."""
    if stone is None:
        return False
    return stone.seq >= record.seq if stone.reason == "forgotten" else stone.moves > record.moves


def _copied(shelved: Shelved) -> Record:
    named = persons(shelved.path, shelved.page, 0)
    return shelved.record.model_copy(update={"id": named.id, "key": named.key, "aliases": []})


def _at_home(shelved: Shelved) -> bool:
    folder = folder_part(shelved.path).rpartition("/")[2]
    return folder == folder_of(shelved.record.id, shelved.record.key)
