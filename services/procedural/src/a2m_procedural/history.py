"""Which files of the whole history are of which ids, and what commits say of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from a2m_procedural.archive import Archive, Change
from a2m_procedural.catalogue import path_digest
from a2m_procedural.message import Edit, message
from a2m_procedural.names import folder_part, is_made_for
from a2m_procedural.rewriting import File
from a2m_procedural.skill import MAX_FRONT, NAMESPACE, Skill, parse
from a2m_protocol.types import MAX_CONTENT, Record

LOOSE = ""
"""The path of a blob that no commit has at any."""

_MOST_BYTES = MAX_FRONT + 4 * MAX_CONTENT
_STEP_BYTES = 16 * 2**20
_FEW = 50
_PERSONS = "skill/"
_ERASED = b"(erased)"
_CALL = re.compile(rb"^A2M-Call: ([a-z]+)$", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]+")


@dataclass(frozen=True, slots=True)
class History:
    """What commits did to skills, and by id the files of the ids that were looked for."""

    changes: Mapping[str, Sequence[Change]]
    files: Mapping[str, frozenset[File]]


def look(archive: Archive, ids: Iterable[str]) -> History:
    """All files, reachable or not, that hold something of ids."""
    wanted = Wanted(ids)
    objects = archive.objects()
    commits = [sha for sha, (kind, _) in objects.items() if kind == "commit"]
    changes = archive.changes(commits)
    files = {file for made in changes.values() for change in made for file in change.files}
    blobs = {sha: size for sha, (kind, size) in objects.items() if kind == "blob" and size <= _MOST_BYTES}
    files |= {File(LOOSE, sha) for sha in blobs.keys() - archive.reached(commits)}
    found: dict[str, set[File]] = {record_id: set() for record_id in wanted.ids}
    inside = _inside(archive, wanted, {sha: blobs[sha] for file in files if (sha := file.blob) in blobs})
    for file in files:
        for record_id in wanted.at(file.path) | inside.get(file.blob, set()):
            found[record_id].add(file)
    return History(changes, {record_id: frozenset(held) for record_id, held in found.items()})


class Wanted:
    """Tells which of some ids a file is of: by what stands in it, and a person's by where it is."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = frozenset(ids)
        # Only ids that YAML writes as they are can be looked for without reading YAML, and not too many.
        plain = len(self.ids) <= _FEW and all(_PLAIN.fullmatch(record_id) for record_id in self.ids)
        self._marks = [record_id.encode() for record_id in self.ids] if plain else [NAMESPACE.encode()]

    def of(self, path: str, data: bytes) -> set[str]:
        """The ids that a file at a path may be of."""
        return self.at(path) | self.within(data)

    def at(self, path: str) -> set[str]:
        """The ids that a person's skill at a path may have."""
        if path == LOOSE:
            return set()
        names = (folder_part(path) or ".", path_digest(path).hex())
        return {record_id for name in names if (record_id := _PERSONS + name) in self.ids}

    def within(self, data: bytes) -> set[str]:
        """The id that a file says it has."""
        if not any(mark in data for mark in self._marks):
            return set()
        skill = parse(data)
        fields = None if skill is None else skill.fields
        return {fields.id} if fields is not None and fields.id in self.ids else set()


def _inside(archive: Archive, wanted: Wanted, blobs: Mapping[str, int]) -> dict[str, set[str]]:
    """The ids that blobs, given with their sizes, say they have; a part of them is read at a time."""
    found: dict[str, set[str]] = {}
    for some in _steps(blobs):
        for sha, held in archive.read(some).items():
            if ids := wanted.within(held.data):
                found[sha] = ids
    return found


def _steps(blobs: Mapping[str, int]) -> Iterator[list[str]]:
    some: list[str] = []
    weight = 0
    for sha, size in sorted(blobs.items()):
        if some and weight + size > _STEP_BYTES:
            yield some
            some, weight = [], 0
        some.append(sha)
        weight += size
    if some:
        yield some


class Words:
    """What commits say once `files` are gone: nothing of those. A person's words stay, but for our names."""

    def __init__(
        self, archive: Archive, history: History, ids: Collection[str], files: frozenset[File]
    ) -> None:
        self._archive = archive
        self._history = history
        self._files = files
        folders = {folder_part(file.path).rpartition("/")[2] for file in files}
        names = {name for name in folders if any(is_made_for(name, record_id) for record_id in ids)}
        self._names = [name.encode() for name in names]

    def __call__(self, commit: str, said: bytes) -> bytes:
        changes = self._history.changes.get(commit, ())
        call = _CALL.search(said)
        if call is not None and any(file in self._files for change in changes for file in change.files):
            return message([*self._edits(changes)], call[1].decode()).encode()
        return self.cleared(said)

    def cleared(self, said: bytes) -> bytes:
        """Words without the names of folders that were made for what is erased."""
        for name in self._names:
            said = said.replace(name, _ERASED)
        return said

    def _edits(self, changes: Iterable[Change]) -> Iterator[Edit]:
        left = [(c.path, self._left(c.path, c.old), self._left(c.path, c.new)) for c in changes]
        blobs = self._archive.read(blob for _, old, new in left if (blob := new or old) is not None)
        for path, old, new in left:
            blob = new or old
            if blob is not None:
                verb = "Remove" if new is None else "Rewrite" if old is not None else "Add"
                yield Edit(verb, folder_part(path), _named(path, parse(blobs[blob].data)))

    def _left(self, path: str, blob: str | None) -> str | None:
        return None if blob is None or File(path, blob) in self._files else blob


def _named(path: str, skill: Skill | None) -> Record:
    """What a message says of a record: its id, its owner, and where it came from."""
    fields = None if skill is None else skill.fields
    return Record(
        id=f"{_PERSONS}{folder_part(path) or '.'}" if fields is None else fields.id,
        owner=None if fields is None else fields.owner,
        provenance=None if fields is None else fields.provenance,
        content="",
        etag="",
        seq=0,
        created_at="1970-01-01T00:00:00.000Z",
    )
