"""What the tests of the system share: servers to talk to, conversations to bring in, and an audit of them."""

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
from anyio.from_thread import start_blocking_portal

import a2m_cli
from a2m_protocol.clock import format_ms
from a2m_server.dispatch import Dispatcher
from a2m_server.exchange import Exchange
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier
from a2m_server.metrics import Metrics

CAPACITY = 20
PAGE = 1_000

_YEAR_2000_MS = 946_684_800_000
_HOUR_MS, _SECOND_MS = 3_600_000, 1_000
_SETTLED_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """One server: bytes in, the bytes of a JSON-RPC response out."""

    name: str
    exchange: Callable[[bytes], bytes]

    def ask(self, method: str, params: Any) -> Any:
        """The response to a call."""
        message = {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}
        return json.loads(self.exchange(json.dumps(message).encode()))

    def call(self, method: str, **params: Any) -> Any:
        """The result of a call, which must not be refused."""
        response = self.ask(method, params)
        assert "error" not in response, f"{self.name}: {method}: {response['error']}"
        return response["result"]

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
    poll: Callable[..., Any]

    def settle(self, sessions: list[str]) -> dict[str, list[dict[str, Any]]]:
        """What each tier holds of sessions, once two looks agree and no session is over capacity."""
        last: Any = None

        def looked() -> Any:
            nonlocal last
            before, last = last, self._held(sessions)
            over = [s for s, n in Counter(e["session"] for e in last["working"]).items() if n > CAPACITY]
            return last if last == before and not over else None

        return self.poll("the spill", looked, _SETTLED_SECONDS)

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
        assert "working" not in [r["tier"] for r in records][: max(0, len(turns) - CAPACITY)]
        named = defaultdict(set)
        for record, turn in zip(records, turns, strict=True):
            named[turn.group].add(record.get("group"))
        assert named.pop(None, {None}) == {None}
        assert all(len(names) == 1 and None not in names for names in named.values())
        assert len(set.union(set(), *named.values())) == len(named)

    def _check_counts(self) -> None:
        def agree() -> bool:
            described = {tier["name"]: tier["count"] for tier in self.router.call("describe")["tiers"]}
            return described == {name: len(tier.entries()) for name, tier in self.tiers.items()}

        self.poll("agreement of the counts", agree, _SETTLED_SECONDS)

    def _held(self, sessions: list[str]) -> dict[str, list[dict[str, Any]]]:
        return {name: tier.entries(where={"session": sessions}) for name, tier in self.tiers.items()}


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def router(federation: Any, http: httpx.Client) -> Server:
    return Server("router", _over_http(http, federation.url))


@pytest.fixture(scope="session")
def tiers(federation: Any, http: httpx.Client) -> dict[str, Server]:
    """The four services, asked with the service token."""
    return {
        name: Server(name, _over_http(http, url, federation.token))
        for name, url in federation.urls.items()
        if name != "router"
    }


@pytest.fixture(scope="session")
def memory() -> Iterator[Server]:
    """The in-memory server in this process, reached through JSON text like any other."""
    with start_blocking_portal() as portal:
        dispatcher = Dispatcher(MemoryTier())
        exchange = Exchange(dispatcher, 60.0, Metrics())
        peer = Peer(LOCAL, push=True)

        def answer(body: bytes) -> bytes:
            response = portal.call(exchange.answer, body, peer)
            assert response is not None
            return response

        portal.call(dispatcher.open)
        yield Server("memory", answer)
        portal.call(dispatcher.close)


@pytest.fixture(scope="session")
def servers(memory: Server, tiers: dict[str, Server], router: Server) -> dict[str, Server]:
    """All six by name."""
    return {"memory": memory, **tiers, "router": router}


def _over_http(client: httpx.Client, url: str, token: str | None = None) -> Callable[[bytes], bytes]:
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return lambda body: client.post(url, content=body, headers=headers).content


@pytest.fixture(scope="session")
def audit(router: Server, tiers: dict[str, Server], poll: Callable[..., Any]) -> Audit:
    return Audit(router, tiers, poll)


@pytest.fixture(scope="session")
def make_conversations(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Conversations]:
    """Makes conversations for tests to import, each time in sessions of their own.

    `shared` is a slice of the outside data, or skips where there is none; `shipped` is made here and from
    the conversation that comes with the command line.
    """
    numbers = count(1)

    def make(source: str) -> Conversations:
        mark = f"{source}-{next(numbers)}"
        folder = tmp_path_factory.mktemp(mark)
        given = Conversations()
        if source == "shared":
            data = _shared_data()
            turns = _lines(data / "locomo" / "conv-26.turns.jsonl")
            chats = _lines(data / "agent-transcripts" / "airline.jsonl")[:6]
        else:
            turns = _invented_turns()
            chats = [*_lines(_bakery()), *_invented_chats()]
        for turn in turns:
            turn |= {name: f"{mark}/{turn[name]}" for name in ("id", "conversation", "session")}
            given.sessions[turn["session"]].append(
                Turn(turn["content"], turn["created_at"], turn["role"], turn["id"], turn.get("group"))
            )
        for number, chat in enumerate(chats):
            chat["conversation"] = f"{mark}/{chat['conversation']}"
            given.sessions[chat["conversation"]] = _turns_of(chat, number)
        for name, lines in (("turns", turns), ("chats", chats)):
            path = folder / f"{name}.jsonl"
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
            given.files.append(path)
        return given

    return make


def _shared_data() -> Path:
    given = os.environ.get("A2M_TEST_DATA")
    data = Path(given) if given else Path(__file__).parents[3] / "shared" / "data"
    if not (data / "locomo").is_dir():
        pytest.skip("the outside data is not there: A2M_TEST_DATA names its folder")
    return data


def _bakery() -> Path:
    return Path(a2m_cli.__file__).parent / "data" / "bakery.jsonl"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _invented_turns() -> list[dict[str, Any]]:
    """Four sessions, interleaved: one is shorter than the capacity, one is all of a single millisecond."""
    sizes = {"short": 7, "exact": CAPACITY, "long": 61, "instant": 33}
    turns: list[dict[str, Any]] = []
    for number in range(max(sizes.values())):
        for session, size in sizes.items():
            if number < size:
                ms = _YEAR_2000_MS + (0 if session == "instant" else number * 1_234)
                turns.append(
                    {
                        "id": f"{session}/{number}",
                        "conversation": "invented",
                        "session": session,
                        "created_at": format_ms(ms),
                        "role": "user" if number % 2 else "assistant",
                        "content": f"{session} {number}: naïve café, 東京, \U0001f9ed, e\u0301, tab\there",
                        "group": f"{session}/pair-{number // 3}",
                    }
                )
    return turns


def _invented_chats() -> list[dict[str, Any]]:
    """A conversation in which one call has more answers than fit into working."""
    calls = [{"id": f"call-{n}", "type": "function", "function": {"name": "look"}} for n in range(8)]
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Help."}]
    for _ in range(6):
        messages.append({"role": "user", "content": "Look at everything."})
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": f"{c['id']} saw it"} for c in calls]
        messages.append({"role": "assistant", "content": ""})
    return [{"conversation": "busy", "messages": messages}]


def _turns_of(chat: dict[str, Any], number: int) -> list[Turn]:
    """The turns of a chat by the documented rules.

    Without times, an hour a conversation and a second a message. A call and its answers are a group, here
    named after the message of the call.
    """
    turns: list[Turn] = []
    calls: dict[str, str] = {}
    for at, message in enumerate(chat["messages"]):
        group = None
        if message.get("tool_calls"):
            group = str(at)
            calls |= {call["id"]: group for call in message["tool_calls"]}
        elif message["role"] == "tool":
            group = calls.get(message["tool_call_id"])
        stamp = format_ms(_YEAR_2000_MS + number * _HOUR_MS + at * _SECOND_MS)
        content = message["content"] or ""
        turns.append(Turn(content, message.get("created_at", stamp), message["role"], None, group))
    return turns
