"""What git does not hold: counts, vectors, tombstones and marks, in SQLite beside the objects.

A write that makes a commit first records what it will do here, as an *intent* named by that commit, then
moves the branch, then applies the intent. Whoever next holds the write lock finds an intent that a killed
writer left, and applies it if the branch has its commit, or drops it.
"""

from __future__ import annotations

import array
import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from a2m_protocol.clock import MAX_SEQ, SEQ_PER_MS
from a2m_server.ledger import Bucket
from a2m_server.values import Tombstone

PURGE_STEP = 200
BUSY_TIMEOUT = 30.0

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class State:
    """A record's part outside git. `file` and `content` are digests of what it was true for."""

    id: str
    etag: str
    file: str
    content: str
    salience: float
    access_count: int
    accessed_at: str | None = None
    embedding: list[float] | None = None
    embedding_model: str | None = None
    features: str | None = None
    arrival: str | None = None


@dataclass(frozen=True, slots=True)
class Effects:
    """All that one call changes outside git: of `past` ids, files are in history from now on."""

    states: list[State] = field(default_factory=list[State])
    gone: list[str] = field(default_factory=list[str])
    past: list[str] = field(default_factory=list[str])
    buried: list[Tombstone] = field(default_factory=list[Tombstone])
    lifted: list[str] = field(default_factory=list[str])
    elsewhere: list[Bucket] = field(default_factory=list[Bucket])
    last: int = 0
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    commit: str
    base: str | None
    effects: Effects


class Journal:
    """One thread's connection; `keep_ms` is how long a tombstone lives."""

    def __init__(self, path: Path, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        path.chmod(0o600)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            self._db.execute(f"PRAGMA {pragma}")
        with self._transaction():
            for statement in (files(__package__ or "") / "schema.sql").read_text().split(";"):
                self._db.execute(statement)

    def close(self) -> None:
        self._db.close()

    def version(self) -> int:
        """A number that grows with every change of what is here."""
        return int(self._fact("version") or 0)

    def width(self) -> int | None:
        """How many numbers the store's vectors have, once one was stored."""
        text = self._fact("width")
        return None if text is None else int(text)

    def last(self) -> int:
        """The highest `seq` ever assigned or taken here."""
        return int(self._fact("last") or 0)

    def unfollowed(self) -> str | None:
        """The commit at which the checked-out files were left behind; empty for one before the first."""
        return self._fact("unfollowed")

    def set_unfollowed(self, commit: str | None) -> None:
        with self._transaction():
            self._set_fact("unfollowed", commit)

    def marks(self) -> dict[str, tuple[str, str | None]]:
        """For each state's id, what is another whenever anything of it is: its etag and arrival."""
        rows = self._db.execute("SELECT id, etag, arrival FROM states")
        return {row["id"]: (row["etag"], row["arrival"]) for row in rows}

    def states(self, ids: Iterable[str]) -> Iterator[State]:
        for some, marks in _chunks(ids):
            for row in self._db.execute(f"SELECT * FROM states WHERE id IN ({marks})", some):  # noqa: S608 marks
                fields: dict[str, Any] = dict(row)
                fields["embedding"] = _floats(fields["embedding"])
                yield State(**fields)

    def tombstones(self, ids: Iterable[str], now_ms: int) -> dict[str, Tombstone]:
        oldest = now_ms - self._keep_ms
        found: dict[str, Tombstone] = {}
        for some, marks in _chunks(ids):
            query = f"SELECT stone FROM tombstones WHERE buried_ms > ? AND id IN ({marks})"  # noqa: S608 marks
            for (text,) in self._db.execute(query, [oldest, *some]):
                stone = _STONE.validate_json(text)
                found[stone.id] = stone
        return found

    def graves(self, limit: int, after: tuple[int, str] | None, now_ms: int) -> list[Tombstone]:
        """Tombstones of what was forgotten while they last, by `seq` then id, beyond a position."""
        seq, last = after or (-MAX_SEQ - 1, "")
        oldest = (now_ms - self._keep_ms) * SEQ_PER_MS
        values = {"seq": max(seq, oldest), "after": seq, "id": last, "limit": limit}
        return [_STONE.validate_json(text) for (text,) in self._db.execute(_FORGOTTEN, values)]

    def elsewhere(self) -> set[Bucket]:
        return {tuple(json.loads(text)) for (text,) in self._db.execute("SELECT bucket FROM elsewhere")}

    def intents(self) -> list[Intent]:
        rows = self._db.execute("SELECT commit_id, base, effects FROM intents ORDER BY rowid").fetchall()
        return [Intent(commit, base, _EFFECTS.validate_json(text)) for commit, base, text in rows]

    def intend(self, intent: Intent) -> None:
        with self._transaction():
            values = (intent.commit, intent.base, _EFFECTS.dump_json(intent.effects).decode())
            self._db.execute("INSERT OR REPLACE INTO intents VALUES (?, ?, ?)", values)

    def drop(self, commit: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM intents WHERE commit_id = ?", (commit,))

    def mentions(self, record_id: str) -> list[str]:
        """The tables that have something of an id; a tombstone is nothing."""
        quoted = json.dumps(record_id, ensure_ascii=False)
        looks = {
            "states": ("SELECT 1 FROM states WHERE id = ?", record_id),
            "intents": ("SELECT 1 FROM intents WHERE instr(effects, ?)", quoted),
        }
        return [table for table, (sql, value) in looks.items() if self._db.execute(sql, (value,)).fetchone()]

    def past(self, ids: Iterable[str]) -> set[str]:
        """Those of ids that a call of this service left to history."""
        found: set[str] = set()
        for some, marks in _chunks(ids):
            rows = self._db.execute(f"SELECT id FROM past WHERE id IN ({marks})", some)  # noqa: S608 marks
            found.update(row["id"] for row in rows)
        return found

    def erasures(self) -> list[tuple[int, str]]:
        """Plans of erasures that did not end, with their numbers."""
        return [tuple(row) for row in self._db.execute("SELECT number, plan FROM erasures ORDER BY number")]

    def plan_erasure(self, plan: str) -> int:
        with self._transaction():
            number = self._db.execute("INSERT INTO erasures (plan) VALUES (?)", (plan,)).lastrowid
        return number or 0

    def end_erasure(self, number: int) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM erasures WHERE number = ?", (number,))

    def erased(self, ids: Sequence[str]) -> None:
        """Let go of what history holds no more."""
        with self._transaction():
            self._remove("past", ids)

    def checkpoint(self) -> None:
        """Leave nothing of what was deleted in SQLite's own log, unless a reader is using it just now."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def apply(self, effects: Effects, now_ms: int, commit: str | None = None) -> None:
        """Make effects true, the intent of `commit` done, and some tombstones that had their time gone."""
        with self._transaction():
            self._remove("states", [*effects.gone])
            self._remove("tombstones", effects.lifted)
            self._db.executemany("INSERT OR IGNORE INTO past VALUES (?)", [(i,) for i in effects.past])
            self._db.executemany(
                "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(s.id, s.etag, s.file, s.content, s.salience, s.access_count, s.accessed_at),
                        None if s.embedding is None else array.array("f", s.embedding).tobytes(),
                        *(s.embedding_model, s.features, s.arrival),
                    )
                    for s in effects.states
                ],
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?)",
                [(stone.id, now_ms, _STONE.dump_json(stone).decode()) for stone in effects.buried],
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO elsewhere VALUES (?)", [(json.dumps(b),) for b in effects.elsewhere]
            )
            self._db.execute(
                "DELETE FROM tombstones WHERE id IN "
                "(SELECT id FROM tombstones WHERE buried_ms <= ? ORDER BY buried_ms LIMIT ?)",
                (now_ms - self._keep_ms, PURGE_STEP),
            )
            if commit is not None:
                self._db.execute("DELETE FROM intents WHERE commit_id = ?", (commit,))
            if effects.width is not None:
                self._set_fact("width", str(effects.width))
            self._set_fact("last", str(max(effects.last, self.last())))
            self._set_fact("version", str(self.version() + 1))

    def _fact(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _set_fact(self, name: str, value: str | None) -> None:
        if value is None:
            self._db.execute("DELETE FROM facts WHERE name = ?", (name,))
        else:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def _remove(self, table: str, ids: Sequence[str]) -> None:
        self._db.executemany(f"DELETE FROM {table} WHERE id = ?", [(i,) for i in ids])  # noqa: S608 our own names

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


# As the index has them.
_FORGOTTEN = """
SELECT stone FROM tombstones
WHERE json_extract(stone, '$.reason') = 'forgotten' AND json_extract(stone, '$.seq') >= :seq
    AND (json_extract(stone, '$.seq'), id) > (:after, :id)
ORDER BY json_extract(stone, '$.seq'), id LIMIT :limit
"""
_EFFECTS = TypeAdapter(Effects)
_STONE = TypeAdapter(Tombstone)


def _chunks(ids: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    every = list(dict.fromkeys(ids))
    for start in range(0, len(every), _CHUNK):
        some = every[start : start + _CHUNK]
        yield some, ",".join("?" * len(some))


def _floats(data: bytes | None) -> list[float] | None:
    if data is None:
        return None
    numbers = array.array("f")
    numbers.frombytes(data)
    return numbers.tolist()
