"""What is kept of ids, by a walk over the keys themselves: whatever leads to it, or no longer does."""

from __future__ import annotations

from collections.abc import Sequence

from a2m_server.values import Remnant
from a2m_working.database import Database

PAGE = 256

_HASHES = {b"j": "records", b"s": "states", b"v": "vectors", b"f": "features"}
_SETS = {b"z": "timelines", b"n": "arrivals"}
_INDEXES = {b"k": "keys", b"a": "aliases"}
_NAMES = {b"i": "ids", b"a": "aliases"}
_CLAIM = b"d:i"
_FOR_EVER = -1


async def find(database: Database, prefix: str, ids: Sequence[str]) -> list[Remnant]:
    """Each key family that has something of an id; its tombstone, and what expires with it, are none."""
    look = _Look(database, {record_id.encode(): record_id for record_id in ids})
    async for keys in database.keys(prefix, PAGE):
        await database.together(look.at(key, *_family(key, prefix.encode())) for key in keys)
    return [Remnant(record_id, place) for record_id in ids for place in sorted(look.found[record_id])]


class _Look:
    def __init__(self, database: Database, wanted: dict[bytes, str]) -> None:
        self._database = database
        self._wanted = wanted
        self.found: dict[str, set[str]] = {record_id: set() for record_id in wanted.values()}

    async def at(self, key: bytes, family: bytes, name: bytes) -> None:
        if family in _HASHES:
            self._add(_HASHES[family], await self._database.command("HMGET", key, *self._wanted))
        elif family in _SETS:
            self._add(_SETS[family], await self._database.command("ZMSCORE", key, *self._wanted))
        elif family in _INDEXES:
            held = set(await self._database.command("HVALS", key))
            self._add(_INDEXES[family], [True if wanted in held else None for wanted in self._wanted])
        named = self._wanted.get(name)
        if named is None:
            return
        if family in _NAMES:
            self.found[named].add(_NAMES[family])
        # The claim of what was deleted lasts as long as its tombstone.
        elif family == _CLAIM and await self._database.command("PTTL", key) == _FOR_EVER:
            self.found[named].add("claims")

    def _add(self, place: str, held: Sequence[object]) -> None:
        for record_id, value in zip(self._wanted.values(), held, strict=True):
            if value is not None:
                self.found[record_id].add(place)


def _family(key: bytes, prefix: bytes) -> tuple[bytes, bytes]:
    """What a key is for, such as `i` or on a Cluster `d:i`, and the name in it."""
    rest = key[len(prefix) :]
    if rest.startswith(b"{"):
        rest = rest.partition(b"}:")[2]
    directory, rest = (b"d:", rest[2:]) if rest.startswith(b"d:") else (b"", rest)
    family, _, name = rest.partition(b":")
    return directory + family, name
