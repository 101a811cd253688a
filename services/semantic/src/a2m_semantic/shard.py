"""The shard of a folder: made, loaded when it is needed, and used by several threads at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

import qdrant_edge as qdrant

from a2m_protocol.errors import unavailable
from a2m_semantic.engine import TERMS
from a2m_semantic.points import FLOATS, INTEGERS, KEYWORDS, NUMBER_HIGH, NUMBER_KEY, NUMBERS_ARRAY

SHARD = "shard"

Result = TypeVar("Result")


class Shard:
    """A `qdrant.EdgeShard` on loan to threads; between two loans it may be closed, and so loaded anew.

    All methods block. The first use loads it, and so does the next one after a close. A load that fails is
    tried again by the next use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: qdrant.EdgeShard | None = None
        self._users = 0
        self._closing = False
        self._ended = False
        self._changed = threading.Condition()

    def use(self, work: Callable[[qdrant.EdgeShard], Result]) -> Result:
        """What `work` makes of the shard, which stays open until it has ended."""
        with self._lent() as shard:
            return work(shard)

    def close(self, *, ended: bool = False) -> None:
        """Wait for those who use the shard, bring what is logged into its files, and close it.

        Whoever wants to use it meanwhile waits, and loads it anew, or is refused once it has `ended`. One
        that cannot be flushed stays open.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._closing)
            self._closing = True
            self._ended = self._ended or ended
            try:
                self._changed.wait_for(lambda: not self._users)
                if self._loaded is not None:
                    self._loaded.flush()
                    closing, self._loaded = self._loaded, None
                    closing.close()
            finally:
                self._closing = False
                self._changed.notify_all()

    @contextlib.contextmanager
    def _lent(self) -> Generator[qdrant.EdgeShard]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closing)
            if self._ended:
                raise unavailable("the semantic store", "it is not open")
            if self._loaded is None:
                self._loaded = load(self._folder)
            shard = self._loaded
            self._users += 1
        try:
            yield shard
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make(folder: Path) -> None:
    """Make an empty shard in a folder that has none: beside and renamed, so that none is ever half there."""
    path = folder / SHARD
    if path.exists():
        return
    building = folder / "building"
    # What a kill left of an earlier one; nobody else has this folder.
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    config = qdrant.EdgeConfig(
        vectors={},
        sparse_vectors={TERMS: qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf)},
        wal_enabled=True,
    )
    qdrant.EdgeShard.create(str(building), config).close()
    building.rename(path)
    sync(folder)


def load(folder: Path) -> qdrant.EdgeShard:
    """The shard of a folder, with an index of each field that filters look at."""
    shard = qdrant.EdgeShard.load(str(folder / SHARD))
    held = shard.info().payload_schema
    schemas = (
        dict.fromkeys(KEYWORDS, qdrant.KeywordIndexParams(prefix=True))
        # Numbers are only ever compared, and to look them up costs as much memory again.
        | dict.fromkeys(INTEGERS, qdrant.IntegerIndexParams(lookup=False, range=True))
        | dict.fromkeys(FLOATS, qdrant.FloatIndexParams())
        | {NUMBER_KEY: qdrant.KeywordIndexParams(nested=NUMBERS_ARRAY)}
        | {NUMBER_HIGH: qdrant.FloatIndexParams(nested=NUMBERS_ARRAY)}
    )
    for field, schema in schemas.items():
        if field not in held:
            shard.update(qdrant.UpdateOperation.create_field_index(field, schema))
    return shard
