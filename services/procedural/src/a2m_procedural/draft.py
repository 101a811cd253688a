"""What a call changed: the files of a commit, and the effects outside git."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from a2m_procedural.bench import Bench
from a2m_procedural.catalogue import Shelved
from a2m_procedural.journal import Effects, State
from a2m_procedural.message import Edit, message
from a2m_procedural.names import SKILL, folder_of, folder_part
from a2m_procedural.shelf import View, digest_of
from a2m_procedural.skill import describe, kept_in_git, render
from a2m_protocol.types import Record
from a2m_server.values import Tombstone


@dataclass(frozen=True, slots=True)
class Change:
    """`files` holds bytes to write at a path, or None to remove it."""

    files: Mapping[str, bytes | None]
    edits: list[Edit]
    effects: Effects

    def message(self, call: str) -> str:
        return message(self.edits, call)


def compare(
    view: View, graves: Mapping[str, Tombstone], bench: Bench, parent: str, *, forgets: bool = False
) -> Change:
    """The difference between a view and the bench that a call worked on; new skills go beneath `parent`.

    A call that `forgets` takes along every other file of what is forgotten: copies that a person made, and
    what a reset brought back.
    """
    before, after = view.ledger.records, bench.ledger.records
    files: dict[str, bytes | None] = {}
    edits: list[Edit] = []
    states: list[State] = []
    gone = before.keys() - after.keys()
    # The newest hidden file of an id that is written anew is where it is written.
    doomed = [shelved for i in after.keys() - before.keys() for shelved in view.hidden.get(i, ())[1:]]
    if forgets:
        stones = bench.ledger.graves.items()
        forgotten = {i for i, stone in stones if stone.reason == "forgotten" and i not in after}
        doomed += [shelved for record_id in forgotten for shelved in view.hidden.get(record_id, ())]
        gone |= forgotten | {i for i, shelved in view.shelved.items() if _named_in(shelved) in forgotten}
    doomed += [view.shelved[record_id] for record_id in gone if record_id in view.shelved]
    for shelved in doomed:
        files[shelved.path] = None
        edits.append(Edit("Remove", folder_part(shelved.path), shelved.record))
    occupied = set(view.occupied)
    if view.head is None:
        # The history is ours to begin: no clone may turn line ends over.
        files[".gitattributes"] = b"SKILL.md -text\n"
    for record_id, record in after.items():
        old = before.get(record_id)
        if old is record or record_id in gone:
            continue
        shelved = view.shelved.get(record_id)
        if old is not None and shelved is not None and kept_in_git(old) == kept_in_git(record):
            file = shelved.page.file
        else:
            if shelved is not None:
                path = shelved.path
            else:
                hidden = view.hidden.get(record_id)
                path = hidden[0].path if hidden else _new_path(record, parent, occupied)
            data = _file(record, path, shelved)
            files[path] = data
            edits.append(Edit("Add" if shelved is None else "Rewrite", folder_part(path), record))
            file = hashlib.sha256(data).hexdigest()[:24]
        states.append(_state(record, file))
    lasting = bench.ledger.graves
    effects = Effects(
        states=states,
        gone=sorted(gone),
        past=sorted({name for shelved in doomed for name in (shelved.record.id, _named_in(shelved)) if name}),
        buried=[stone for stone_id, stone in lasting.items() if graves.get(stone_id) != stone],
        lifted=sorted(graves.keys() - lasting.keys()),
        elsewhere=sorted(bench.ledger.elsewhere - view.ledger.elsewhere, key=repr),
        last=bench.ledger.last if bench.ledger.last != view.ledger.last else 0,
        width=bench.width if bench.width != view.width else None,
    )
    return Change(files if edits else {}, edits, effects)


def _named_in(shelved: Shelved) -> str | None:
    """The id that a file says it has, be it a copy that counts as another."""
    return None if shelved.page.skill.fields is None else shelved.page.skill.fields.id


def _file(record: Record, path: str, shelved: Shelved | None) -> bytes:
    """A person's own description stays until the metadata bring one."""
    folder = folder_part(path).rpartition("/")[2]
    if shelved is None:
        return render(record, folder, {})
    skill = shelved.page.skill
    persons = skill.fields is None or skill.description != describe(shelved.record)
    return render(record, folder, skill.front, skill.description if persons else None)


def _new_path(record: Record, parent: str, occupied: set[str]) -> str:
    prefix = f"{parent}/" if parent else ""
    taken = {name[len(prefix) :] for name in occupied if name.startswith(prefix.lower())}
    folder = folder_of(record.id, record.key, taken)
    path = f"{prefix}{folder}/{SKILL}"
    occupied.add(f"{prefix}{folder}".lower())
    return path


def _state(record: Record, file: str) -> State:
    return State(
        id=record.id,
        etag=record.etag,
        file=file,
        content=digest_of(record.content),
        salience=record.salience,
        access_count=record.access_count,
        accessed_at=record.accessed_at,
        embedding=record.embedding,
        embedding_model=record.embedding_model,
        features=record.features,
        arrival=record.arrival,
    )
