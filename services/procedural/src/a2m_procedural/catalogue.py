"""The skills in a commit, parsed once a blob; shared by the threads of a store."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from a2m_procedural.names import folder_part
from a2m_procedural.repository import Blob, Repository
from a2m_procedural.skill import Skill, describe, parse
from a2m_protocol.clock import MAX_SEQ, SEQ_PER_MS, created_at_of
from a2m_protocol.types import MAX_NAME, Record, check_text
from a2m_retrieval.text import index_terms, said

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


class Catalogue:
    """What is in the commit that was asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._learnt: dict[str, bytes] = {}
        self._pages: dict[str, Page | None] = {}
        self._added: dict[tuple[str, str], int] = {}
        self._tree: tuple[str | None, list[Shelved], frozenset[str]] | None = None

    def at(self, repository: Repository, head: str | None) -> tuple[list[Shelved], frozenset[str]]:
        """The skills in a commit, in no order, and its paths and folders in lower case."""
        with self._lock:
            if self._tree is None or self._tree[0] != head:
                self._tree = (head, *self._scan(repository, head))
            return self._tree[1:]

    def learn(self, blobs: Mapping[str, bytes]) -> None:
        """Take the bytes of blobs just written, so that they need not be read back."""
        with self._lock:
            self._learnt |= blobs

    def _scan(self, repository: Repository, head: str | None) -> tuple[list[Shelved], frozenset[str]]:
        if head is None:
            return [], frozenset()
        blobs, occupied = repository.skills(head)
        data = {b.sha: self._learnt[b.sha] for b in blobs if b.sha in self._learnt}
        data |= repository.read(b.sha for b in blobs if b.sha not in self._pages and b.sha not in data)
        self._learnt.clear()
        pages = {b.sha: _page(b, data[b.sha]) if b.sha in data else self._pages[b.sha] for b in blobs}
        # What is no longer at the tip is let go of, forgotten skills among it.
        self._pages = pages
        theirs = [b for b in blobs if (page := pages[b.sha]) is not None and page.skill.fields is None]
        self._added = self._times(repository, head, theirs)
        before = {} if self._tree is None else {(s.path, s.sha): s for s in self._tree[1]}
        found: list[Shelved] = []
        for blob in blobs:
            page, known = pages[blob.sha], before.get((blob.path, blob.sha))
            if known is not None and page is not None and page.skill.fields is not None:
                found.append(known)
            elif page is not None:
                found.append(Shelved(blob.path, blob.sha, page, self._record(blob, page)))
        return found, frozenset(occupied)

    def _times(self, repository: Repository, head: str, blobs: list[Blob]) -> dict[tuple[str, str], int]:
        known = {(b.path, b.sha): self._added.get((b.path, b.sha)) for b in blobs}
        if None in known.values():
            times = repository.added(head)
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


def persons(path: str, page: Page, added: int) -> Record:
    """The record of a skill that a person wrote: id and key from its folder, time from its first commit."""
    folder = folder_part(path) or "."
    digest = path_digest(path)
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


def _page(blob: Blob, data: bytes) -> Page | None:
    skill = parse(data)
    if skill is None:
        log.warning("%r is no text that a record can hold: left out", blob.path)
        return None
    return Page(skill, hashlib.sha256(data).hexdigest()[:24], tuple(_terms(skill)))


def path_digest(path: str) -> bytes:
    return hashlib.sha256(path.encode(errors="surrogateescape")).digest()


def _unfit(text: str) -> bool:
    try:
        check_text(text)
    except ValueError:
        return True
    return False


def _terms(skill: Skill) -> list[str]:
    """What a skill is found by: what was said, a description that is not merely its first line, its task."""
    metadata = skill.metadata() or {}
    texts = [said(skill.content, metadata)]
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
