"""Servers as the tests of bad input see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

SERVERS = ("memory", "working", "episodic", "semantic", "procedural", "router")
WIDTH = 8
INFINITE = "@1e400@"
"""Stands for the JSON number 1e400, which no JSON library would write."""


class Target:
    """One server, and a few records in it that bad input must not change."""

    def __init__(self, server: Any) -> None:
        self.name = name = server.name
        self.exchange = server.exchange
        self.call = server.call
        self.tiered = name == "router"
        self.canaries = [
            {
                "id": f"canary/{name}/{n}",
                "content": f"canary {n}",
                "session": f"canary/{name}",
                "key": f"canary/{name}/{n}",
                "group": f"canary/{name}",
                "role": "user",
                "metadata": {"n": n},
                "embedding": [1.0, float(n), *[0.5] * (WIDTH - 2)],
            }
            for n in range(4)
        ]
        self.state: Any = None
        self.call("remember", records=self.canaries)

    def ask(self, method: str, params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        return json.loads(self.exchange(encode(message)))

    def send(self, message: Any) -> int | None:
        """The code for a message, which is bytes or a value to be encoded; None where there is no error."""
        body = message if isinstance(message, bytes) else encode(message)
        return code_of(json.loads(self.exchange(body)))

    def code(self, method: str, params: Any) -> int | None:
        """The code of the error, None where there was none."""
        return code_of(self.ask(method, params))

    def look(self) -> Any:
        """Whatever a bad call might have changed: how much there is, and the canaries whole."""
        described = self.call("describe")
        counts = sum(tier["count"] for tier in described["tiers"]) if self.tiered else described["count"]
        sessions = len(self.call("session/list")["sessions"])
        canaries = self.call("read", ids=[canary["id"] for canary in self.canaries])["records"]
        return counts, sessions, described["embeddings"]["dimensions"], canaries

    def assert_unchanged(self) -> None:
        before, self.state = self.state, self.look()
        assert self.state == before


def encode(value: Any) -> bytes:
    """JSON text, with what `INFINITE` stands for put in."""
    return json.dumps(value).replace(f'"{INFINITE}"', "1e400").encode()


def code_of(response: Any) -> int | None:
    return response["error"]["code"] if "error" in response else None


@pytest.fixture(scope="module")
def targets(servers: dict[str, Any]) -> Iterator[dict[str, Target]]:
    """Every server; what is written to the router is in working too, and so all are made at once."""
    made = {name: Target(server) for name, server in servers.items()}
    for target in made.values():
        target.state = target.look()
    yield made
    for target in made.values():
        target.call("forget", ids=[canary["id"] for canary in target.canaries])


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Target:
    return targets[request.param]
