"""The records at the tip of the branch, read again when it moves or when the journal changes."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from a2m_procedural.journal import Journal, State
from a2m_procedural.names import folder_of, folder_part
from a2m_procedural.repository import Blob, Repository
from a2m_procedural.skill import Skill, describe, parse
from a2m_protocol.clock import MAX_SEQ, SEQ_PER_MS, created_at_of
from a2m_protocol.types import MAX_NAME, Record, check_text
from a2m_retrieval.text import index_terms
from a2m_server.ledger import Ledger
from a2m_server.store import Tombstone

log = logging.getLogger(__name__)

TASK_FIELDS = ("task", "task_type", "tags", "name", "title")


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed blob: the skill, a digest of the file, and the terms by which it is found."""

    skill: Skill
    file: str
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shelved:
    """A skill at its path, with the record that its file alone makes."""

    path: str
    sha: str
    page: Page
    record: Record


@dataclass(frozen=True, slots=True)
class View:
    """All records at one commit and one version of the journal; nothing in it is changed later.

    `hidden` has the path of each file that a tombstone outweighs, by the id of what it held.
    """

    head: str | None
    version: int
    shelved: Mapping[str, Shelved]
    hidden: Mapping[str, str]
    ledger: Ledger
    occupied: frozenset[str]
    width: int | None

    def terms(self) -> dict[str, tuple[str, ...]]:
        return {record_id: shelved.page.terms for record_id, shelved in self.shelved.items()}


class Shelf:
    """One thread's view of a repository and its journal."""

    def __init__(self, repository: Repository, journal: Journal) -> None:
        self._repository = repository
        self._journal = journal
        self._pages: dict[str, Page | None] = {}
        self._added: dict[tuple[str, str], int] = {}
        self._tree: tuple[str | None, list[Shelved], frozenset[str]] | None = None
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
        if self._tree is None or self._tree[0] != head:
            self._tree = (head, *self._scan(head))
        _, found, occupied = self._tree
        stones = self._journal.tombstones([s.record.id for s in found], now_ms)
        hidden = {s.record.id: s.path for s in found if _gone(s.record, stones.get(s.record.id))}
        shelved = settle([s for s in found if not _gone(s.record, stones.get(s.record.id))])
        stones = self._journal.tombstones(shelved, now_ms)
        hidden |= {i: s.path for i, s in shelved.items() if _gone(s.record, stones.get(i))}
        shelved = {i: s for i, s in shelved.items() if i not in hidden}
        self._refresh_states()
        ledger = Ledger(elsewhere=self._journal.elsewhere())
        for record_id, one in shelved.items():
            ledger.keep(_whole(one, self._states.get(record_id)))
        # A date from the future in a person's commit must not carry every later write along.
        seqs = (record.seq for record in ledger.records.values() if record.seq < (now_ms + 1) * SEQ_PER_MS)
        ledger.last = max(self._journal.last(), *seqs, 0)
        return View(head, version, shelved, hidden, ledger, occupied, self._journal.width())

    def _scan(self, head: str | None) -> tuple[list[Shelved], frozenset[str]]:
        if head is None:
            return [], frozenset()
        blobs, occupied = self._repository.skills(head)
        data = self._repository.read(blob.sha for blob in blobs if blob.sha not in self._pages)
        pages = {b.sha: _page(b, data[b.sha]) if b.sha in data else self._pages[b.sha] for b in blobs}
        # What is no longer at the tip is let go of, forgotten skills among it.
        self._pages = pages
        theirs = [b for b in blobs if (page := pages[b.sha]) is not None and page.skill.fields is None]
        self._added = self._times(head, theirs)
        before = {} if self._tree is None else {(s.path, s.sha): s for s in self._tree[1]}
        found: list[Shelved] = []
        for blob in blobs:
            page, known = pages[blob.sha], before.get((blob.path, blob.sha))
            if known is not None and page is not None and page.skill.fields is not None:
                found.append(known)
            elif page is not None:
                found.append(Shelved(blob.path, blob.sha, page, self._record(blob, page)))
        return found, frozenset(occupied)

    def _times(self, head: str, blobs: list[Blob]) -> dict[tuple[str, str], int]:
        known = {(b.path, b.sha): self._added.get((b.path, b.sha)) for b in blobs}
        if None in known.values():
            times = self._repository.added(head)
            return {(b.path, b.sha): times.get(b.path, 0) for b in blobs}
        return {place: at for place, at in known.items() if at is not None}

    def _record(self, blob: Blob, page: Page) -> Record:
        fields = page.skill.fields
        if fields is None:
            return persons(blob.path, page, self._added[blob.path, blob.sha])
        return Record(
            **fields.model_dump(exclude={"metadata"}),
            metadata=page.skill.metadata(),
            content=page.skill.content,
            etag=page.file,
        )

    def _refresh_states(self) -> None:
        etags = self._journal.etags()
        stale = [i for i, etag in etags.items() if i not in self._states or self._states[i].etag != etag]
        kept = {i: state for i, state in self._states.items() if i in etags}
        self._states = kept | {state.id: state for state in self._journal.states(stale)}


def persons(path: str, page: Page, added: int) -> Record:
    """The record of a skill that a person wrote: id and key from its folder, time from its first commit."""
    folder = folder_part(path) or "."
    digest = _digest(path)
    name, key = f"skill/{folder}", folder
    if len(name) > MAX_NAME or _unfit(folder):
        name, key = f"skill/{digest.hex()}", None
    seq = min(added * 1000 * SEQ_PER_MS + digest[0], MAX_SEQ)
    given = {
        "id": name,
        "key": key,
        "content": page.skill.content,
        "seq": seq,
        "created_at": created_at_of(seq),
    }
    try:
        return Record.model_validate({**given, "etag": page.file, "metadata": page.skill.metadata()})
    except ValidationError:
        log.warning("the front matter of %r is more than metadata can hold: left out", path)
        return Record.model_validate({**given, "etag": page.file})


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
            update["id"] = f"skill/{_digest(one.path).hex()}"
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


def _page(blob: Blob, data: bytes) -> Page | None:
    skill = parse(data)
    if skill is None:
        log.warning("%r is no text that a record can hold: left out", blob.path)
        return None
    return Page(skill, hashlib.sha256(data).hexdigest()[:24], tuple(_terms(skill)))


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


def _digest(path: str) -> bytes:
    return hashlib.sha256(path.encode(errors="surrogateescape")).digest()


def _at_home(shelved: Shelved) -> bool:
    folder = folder_part(shelved.path).rpartition("/")[2]
    return folder == folder_of(shelved.record.id, shelved.record.key)


def _unfit(text: str) -> bool:
    try:
        check_text(text)
    except ValueError:
        return True
    return False


def _terms(skill: Skill) -> list[str]:
    """What a skill is found by: its content, a description that is not merely its first line, its task."""
    metadata = skill.metadata() or {}
    texts = [skill.content]
    if skill.fields is None or "description" in metadata or skill.description != _derived(skill):
        texts.append(skill.description)
    for name in TASK_FIELDS:
        value = metadata.get(name)
        texts += [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    return index_terms("\n".join(texts))


def _derived(skill: Skill) -> str:
    if skill.fields is None:
        return ""
    fields = skill.fields.model_dump(include={"id", "key", "uri", "seq", "created_at"})
    return describe(Record(**fields, content=skill.content, metadata=skill.metadata(), etag=""))
