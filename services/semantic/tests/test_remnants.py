"""What is left in any point is found, under whatever name."""

from __future__ import annotations

import pytest

from a2m_protocol.types import Draft
from a2m_semantic.engine import Engine, Point, Terms, point_id
from a2m_semantic.store import SemanticStore
from a2m_server.values import EVERYONE, Filter

X = point_id("record", "x")
ELSEWHERE = point_id("other", "y")


@pytest.mark.parametrize(
    ("point", "places"),
    [
        (Point(X, {"id": "x", "version": "v", "state": "grave", "words": ["heron"]}), {"payload"}),
        (Point(X, {"id": "x", "version": "v"}, dense=[1.0, 0.0]), {"vectors"}),
        (Point(X, {"id": "x", "version": "v"}, terms=Terms([7], [1.0])), {"terms"}),
        (Point(ELSEWHERE, {"id": "x", "version": "v", "record": "{}"}), {"records"}),
        (Point(ELSEWHERE, {"id": "y", "version": "v", "aliases": ["x"]}), {"aliases"}),
    ],
)
async def test_what_is_planted_in_a_point_is_found(
    store: SemanticStore, engine: Engine, point: Point, places: set[str]
) -> None:
    drafts = [Draft(id=name, content="a heron", embedding=[1.0, 0.0]) for name in ("x", "z")]
    await store.write(drafts, EVERYONE)
    await store.forget(Filter(ids=("x",)))
    assert (await store.remnants(["x"])).remnants == []
    [grave] = await engine.retrieve([X], ["version"])
    await engine.upsert([point], frozenset({grave.payload["version"]}))
    found = (await store.remnants(["x", "absent"])).remnants
    assert {(r.id, r.place) for r in found} == {("x", place) for place in places}
