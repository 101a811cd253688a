"""Where a repository, its work trees and its journal hold something of ids, and what history keeps apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from a2m_procedural.archive import Archive
from a2m_procedural.history import History, Wanted, look
from a2m_procedural.journal import Journal
from a2m_procedural.names import SKILL
from a2m_procedural.repository import Repository
from a2m_procedural.rewriting import File
from a2m_server.values import Remnant


def find(repository: Repository, journal: Journal, ids: Sequence[str]) -> list[Remnant]:
    """Each place that has something of an id; a tombstone is nothing.

    History is every commit that holds it: of the branch, of `other refs`, or `unreachable` from all of them.
    """
    archive = Archive(repository)
    history = look(archive, ids)
    found = [(record_id, table) for record_id in ids for table in journal.mentions(record_id)]
    found += _at_tip(repository, history)
    found += _in_trees(archive, ids)
    remnants = [Remnant(record_id, place) for record_id, place in sorted(set(found))]
    return remnants + [
        Remnant(i, place, history=True) for i, place in _in_history(repository, archive, history)
    ]


def _at_tip(repository: Repository, history: History) -> Iterator[tuple[str, str]]:
    head = repository.head()
    blobs = [] if head is None else repository.skills(head)[0]
    tip = {File(blob.path, blob.sha) for blob in blobs}
    for record_id, files in history.files.items():
        if files & tip:
            yield record_id, "HEAD"


def _in_trees(archive: Archive, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    wanted = Wanted(ids)
    for tree in archive.trees():
        staged = [file for file in archive.staged(tree) if file.path.rpartition("/")[2] == SKILL]
        blobs = archive.read(file.blob for file in staged)
        for file in staged:
            for record_id in wanted.of(file.path, blobs[file.blob].data):
                yield record_id, "index"
        for path, found in archive.checked_out(tree):
            for record_id in wanted.of(path, found.read_bytes()):
                yield record_id, "work tree"


def _in_history(repository: Repository, archive: Archive, history: History) -> Iterator[tuple[str, str]]:
    if not any(history.files.values()):
        return
    head = repository.head()
    branch = set(archive.ordered([head] if head is not None else []))
    refs = set(archive.ordered(ref.peeled for ref in archive.refs() if ref.peeled_kind == "commit"))
    for record_id, files in sorted(history.files.items()):
        holders = {
            sha
            for sha, changes in history.changes.items()
            for change in changes
            if not files.isdisjoint(change.files)
        }
        if holders & branch:
            yield record_id, "history"
        if holders & refs - branch:
            yield record_id, "other refs"
        if holders - refs - branch or (files and not holders):
            yield record_id, "unreachable objects"
