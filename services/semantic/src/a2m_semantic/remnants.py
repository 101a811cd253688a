"""What is kept of ids, in any point: payload, vectors and terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from a2m_semantic.engine import DENSE, TERMS, AnyOf, Engine, Points, Seen, Some, point_id
from a2m_server.values import Remnant

BARE = frozenset({"id", "version", "state", "seq", "buried", "grave", "grave_ms"})
"""Payload fields of a point that holds a tombstone, or nothing any more."""

_STEP = 256
_VECTORS = {DENSE: "vectors", TERMS: "terms"}


async def find(engine: Engine, ids: Sequence[str]) -> list[Remnant]:
    """Each part of a point that has something of an id, whichever point that is; a tombstone is nothing."""
    found: set[tuple[str, str]] = set()
    for at in range(0, len(ids), _STEP):
        some = tuple(ids[at : at + _STEP])
        points = {point_id("record", record_id): record_id for record_id in some}
        where = Some((Points(tuple(points)), AnyOf("id", some), AnyOf("aliases", some)))
        for seen in await engine.look(where):
            names = {points.get(seen.id), seen.payload.get("id")}
            found |= {(name, place) for name in names if name in some for place in _places(seen)}
            found |= {(alias, "aliases") for alias in seen.payload.get("aliases", ()) if alias in some}
    return [Remnant(record_id, place) for record_id, place in sorted(found)]


def _places(seen: Seen) -> Iterator[str]:
    held = seen.payload.keys() - BARE
    if "record" in held:
        yield "records"
    if held - {"record"}:
        yield "payload"
    yield from (_VECTORS.get(name, name) for name in seen.vectors)
