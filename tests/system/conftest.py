"""What the tests of the system share: talking to each server, conversations to bring in, and an audit of them."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2m_protocol.clock import format_ms
from a2m_protocol.errors import A2MError

CAPACITY = 20
PAGE = 1_000

_YEAR_2000_MS = 946_684_800_000
_HOUR_MS, _SECOND_MS = 3_600_000, 1_000
_SETTLED_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """One server over HTTP, with the service token or without."""

    url: str
    http: httpx.Client
    token: str | None = None

    def post(self, body: bytes) -> httpx.Response:
        headers = {"content-type": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return self.http.post(self.url, content=body, headers=headers)

    def call(self, method: str, **params: Any) -> Any:
        """The result of a call; raises `A2MError`."""
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        answer = self.post(json.dumps(message).encode()).json()
        if "error" in answer:
            raise A2MError(answer["error"]["code"], answer["error"]["message"], answer["error"].get("data"))
        return answer["result"]

    def entries(self, **selected: Any) -> list[dict[str, Any]]:
        """All that a server lists, page by page."""
        found: list[dict[str, Any]] = []
        after: dict[str, Any] = {}
        while True:
            page = self.call("list", limit=PAGE, **selected, **after)
            found += page["entries"]
            if not page["more"]:
                return found
            after = {"after": [found[-1]["seq"], found[-1]["id"]]}


@dataclass(frozen=True)
class Turn:
    """A turn as the input has it. `id` is None where the importer makes it, `group` where it has none."""

    content: str
    created_at: str
    role: str
    id: str | None = None
    group: str | None = None


@dataclass
class Conversations:
    """Files to import, and what must be in a federation afterwards, by session."""

    files: list[Path] = field(default_factory=list)
    sessions: dict[str, list[Turn]] = field(default_factory=lambda: defaultdict(list))

    @property
    def turns(self) -> int:
        return sum(map(len, self.sessions.values()))


@dataclass(frozen=True)
class Audit:
    """Compares what a federation holds with what was brought in, asking each tier itself."""

    router: Server
    tiers: dict[str, Server]

    def settle(self, sessions: list[str]) -> dict[str, list[dict[str, Any]]]:
        """What each tier holds of sessions, once two looks agree and no session is over capacity."""
        last: Any = None

        def looked() -> Any:
            nonlocal last
            before, last = last, self._held(sessions)
            over = [s for s, n in Counter(e["session"] for e in last["working"]).items() if n > CAPACITY]
            return last if last == before and not over else None

        return poll("the spill", looked, _SETTLED_SECONDS)

    def check(self, given: Conversations) -> None:
        """Assert that everything given is there once, in its place and order, and nothing else of it."""
        held = self.settle(list(given.sessions))
        where = defaultdict(list)
        groups = defaultdict(set)
        for tier, entries in held.items():
            for entry in entries:
                where[entry["id"]].append(tier)
                if entry.get("group"):
                    groups[entry["session"], entry["group"]].add(tier)
        assert {i: tiers for i, tiers in where.items() if len(tiers) != 1} == {}
        assert {group: tiers for group, tiers in groups.items() if len(tiers) != 1} == {}
        assert len(where) == given.turns
        for session, turns in given.sessions.items():
            self._check_session(session, turns, where)
        self._check_counts()

    def _check_session(self, session: str, turns: list[Turn], where: dict[str, list[str]]) -> None:
        records = self.router.call("timeline", where={"session": session})["records"]
        assert [(r["content"], r["created_at"], r["role"]) for r in records] == [
            (t.content, t.created_at, t.role) for t in turns
        ]
        assert all(r["id"] == t.id for r, t in zip(records, turns, strict=True) if t.id is not None)
        assert [r["tier"] for r in records] == [where[r["id"]][0] for r in records]
        # Oldest first out: what is left in working is the end of the session.
        assert "working" not in [r["tier"] for r in records][: len(turns) - CAPACITY]
        named = defaultdict(set)
        for record, turn in zip(records, turns, strict=True):
            named[turn.group].add(record.get("group"))
        assert named.pop(None, {None}) == {None}
        assert all(len(names) == 1 and None not in names for names in named.values())
        assert len(set.union(set(), *named.values())) == len(named)

    def _check_counts(self) -> None:
        described = {t["name"]: t["count"] for t in self.router.call("describe")["tiers"]}
        assert described == {name: len(tier.entries(where={})) for name, tier in self.tiers.items()}

    def _held(self, sessions: list[str]) -> dict[str, list[dict[str, Any]]]:
        return {name: tier.entries(where={"session": sessions}) for name, tier in self.tiers.items()}


def poll(what: str, condition: Callable[[], Any], seconds: float) -> Any:
    """Ask until the answer is true, and return it; fails after `seconds`."""
    raise NotImplementedError
