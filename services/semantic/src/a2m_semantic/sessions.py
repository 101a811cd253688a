"""Named sessions, and the marks of those that have records in other tiers."""

from __future__ import annotations

from a2m_protocol.clock import format_ms
from a2m_semantic import reading
from a2m_semantic.engine import All, AnyOf, Clause, Engine, Point, point_id
from a2m_semantic.points import owner_of, owner_token
from a2m_server.values import Filter, SessionInfo

MARK = "mark"
"""The state of a mark's point, and its version: all marks of a session are one and the same."""


async def summaries(engine: Engine, where: Clause) -> list[SessionInfo]:
    """The named sessions of what matches, by name."""
    held: dict[tuple[str, str | None], list[int]] = {}
    for one in await reading.everything(engine, where, ["session", "owner", "created_ms"]):
        if "session" in one.payload:
            bucket = (one.payload["session"], owner_of(one.payload["owner"]))
            held.setdefault(bucket, []).append(one.payload["created_ms"])
    return [
        SessionInfo(session, len(moments), format_ms(moments[0]), format_ms(moments[-1]), owner)
        for (session, owner), moments in sorted(held.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]


async def has_elsewhere(engine: Engine, selected: Filter) -> bool:
    """Whether a session that the filter pins is marked."""
    sessions = selected.where.only("session")
    if sessions is None:
        return False
    tokens = tuple(_token(one) for one in sessions if one is None or isinstance(one, str))
    clauses: list[Clause] = [AnyOf(MARK, tokens)]
    if selected.scope.readable is not None:
        clauses.append(AnyOf("owner", tuple(map(owner_token, selected.scope.readable))))
    return await engine.count(All(tuple(clauses))) > 0


def mark(owner: str | None, session: str | None) -> Point:
    """The point that says that a session has records in other tiers."""
    payload = {"state": MARK, "version": MARK, "owner": owner_token(owner), MARK: _token(session)}
    return Point(point_id(MARK, f"{owner_token(owner)}\n{_token(session)}"), payload)


def _token(session: str | None) -> str:
    return "-" if session is None else f"={session}"
