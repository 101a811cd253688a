"""A tier's second service on another engine, and clients that go on while the tier is brought to it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import uuid4

from caller import Caller
from harness import HOST, Federation, Service, free_ports

from a2m_protocol.errors import A2MError

_PATIENCE = 60.0
_ACTS = ("turn", "turn", "record", "record", "fact", "forget", "recall", "promote", "old")
_WORDS = ["river", "oven", "rye", "window", "lantern", "orchard", "ferry", "copper", "thistle", "harbour"]

_numbers = count(2)


def place(federation: Federation, tier: str, settings: dict[str, str]) -> Caller:
    """Start another service of a tier's kind, over an engine of its own; a caller of it."""
    name, port = f"{tier}-{next(_numbers)}", free_ports(1)[0]
    token = str(federation.folder / "token")
    values = {"HOST": HOST, "PORT": str(port), "TOKEN_FILE": token, **settings}
    environment = {f"A2M_{tier.upper()}_{key}": value for key, value in values.items()}
    log = federation.folder / "logs" / f"{name}.log"
    service = Service(name, f"a2m_{tier}", port, lambda: environment, log)
    federation.services[name] = service
    caller = Caller(name, service.url, (federation.folder / "token").read_text())
    federation.others.append(caller)
    federation.start(name)
    return caller


def adopt(federation: Federation, tier: str, new: Caller) -> None:
    """From now on the tier is where it was moved to."""
    federation.others.remove(new)
    federation.others.append(federation.tiers[tier])
    federation.tiers[tier] = new


def command(federation: Federation, tier: str, url: str, *options: str) -> subprocess.Popen[str]:
    """`a2m migrate`, begun."""
    given = ["--url", federation.router.url, "--token-file", str(federation.folder / "token"), "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "a2m_cli", "migrate", tier, "--to", url, *given, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def migrate(federation: Federation, tier: str, url: str, *options: str) -> dict[str, Any]:
    """What the command tells in the end."""
    running = command(federation, tier, url, *options)
    told, said = running.communicate(timeout=900)
    assert running.returncode == 0, f"{said}\n{federation.log('router')}"
    return json.loads(told)


class Clients:
    """Threads that write, forget, recall and promote, and note what was acknowledged.

    A call that fails in a way that may pass is repeated with the same ids until it succeeds. `slowest` is how
    long a call took at most, its repetitions included, and `calls` how many there were.
    """

    def __init__(self, federation: Federation, tier: str, threads: int = 3) -> None:
        self._router = federation.router
        self._tier = tier
        self._threads = threads
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.held: dict[str, str] = {}
        self.forgotten: set[str] = set()
        self.sessions: set[str] = set()
        self.calls = 0
        self.slowest = 0.0
        self.failures: list[BaseException] = []

    def fill(self, number: int, size: int = 200) -> None:
        """Bring so many records into the tier, some of which have vectors, keys or groups."""
        mark = uuid4().hex[:8]
        for at in range(0, number, size):
            records: list[dict[str, Any]] = []
            for n in range(at, min(number, at + size)):
                fields: dict[str, Any] = {"id": f"fill/{mark}/{n}", "content": f"{n} {_sentence(n)}"}
                fields |= {"metadata": {"n": n, "half": n / 2, "name": "naïve 東京"}}
                if self._tier == "working":
                    # Some sessions spill, others fit.
                    fields |= {"session": f"{mark}-{n // (9 if n % 2 else 5)}"}
                else:
                    fields |= {"tier": self._tier, "session": f"{mark}-{n // 20}"}
                if n % 5 == 0:
                    fields["embedding"] = [random.Random(n).uniform(-1, 1) for _ in range(16)]
                if n % 7 == 0:
                    fields["key"] = f"{mark}/{n}"
                if n % 11 == 0:
                    fields["group"] = f"{mark}/{n // 11}"
                records.append(fields)
            self._call("remember", records=records)
            self.held |= {record["id"]: record["content"] for record in records}
        # Of what was forgotten before, the tombstones must come along.
        gone = [record_id for record_id in self.held if record_id.endswith("3")][: number // 20]
        self._forget(gone)

    @contextmanager
    def busy(self) -> Generator[None]:
        """Let them work meanwhile."""
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(self._threads)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
            self._stop.clear()
        assert self.failures == []

    def _work(self, number: int) -> None:
        try:
            self._go_on(random.Random(number), f"{number}-{uuid4().hex[:8]}")
        except BaseException as failure:  # noqa: BLE001 told by who waits for the thread
            self.failures.append(failure)

    def _go_on(self, dice: random.Random, mark: str) -> None:
        mine: list[str] = []
        for turn in count():
            if self._stop.is_set():
                return
            act = dice.choice(
                ["turn", "turn", "record", "record", "fact", "forget", "recall", "promote", "old"]
            )
            record = {"id": f"{mark}/{turn}", "content": f"{mark} {turn} {_sentence(turn)}"}
            if act == "turn":
                self._remember({**record, "session": f"{mark}-{turn // 40}"}, mine)
            elif act == "record":
                place = {} if self._tier == "working" else {"tier": self._tier}
                self._remember({**record, "session": f"{mark}-r{turn // 40}", **place}, mine)
            elif act == "fact":
                fact = {"content": f"{mark} {turn}", "key": f"{mark}/{dice.randrange(4)}"}
                self._call("remember", records=[fact])
            elif act == "forget" and mine:
                self._forget([mine.pop(dice.randrange(len(mine)))])
            elif act == "old" and turn % 5 == 0:
                # What was there before the move is forgotten too.
                with self._lock:
                    one = next((i for i in self.held if i.startswith("fill/")), None)
                    self.held.pop(one or "", None)
                if one is not None:
                    self._forget([one])
            elif act == "recall":
                told = self._call("recall", query=_sentence(turn), limit=5)
                ids = [one["id"] for one in told["records"]]
                assert len(ids) == len(set(ids)), ids
            elif act == "promote" and mine:
                self._call("promote", ids=[dice.choice(mine)], tier="semantic")
            if mine and turn % 10 == 0:
                self._look(mine[-20:])

    def _look(self, ids: list[str]) -> None:
        """What a client was told is written, it reads."""
        found = {one["id"] for one in self._call("read", ids=ids)["records"]}
        assert found == set(ids), set(ids) - found

    def _remember(self, record: dict[str, Any], mine: list[str]) -> None:
        self._call("remember", records=[record])
        mine.append(record["id"])
        with self._lock:
            self.held[record["id"]] = record["content"]
            self.sessions.add(record["session"])

    def _forget(self, ids: list[str]) -> None:
        self._call("forget", ids=ids)
        with self._lock:
            self.forgotten.update(ids)
            for record_id in ids:
                self.held.pop(record_id, None)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        begun = time.monotonic()
        while True:
            try:
                told = self._router.call(method, **params)
            except A2MError as error:
                if not error.retryable or time.monotonic() - begun > _PATIENCE:
                    raise
                time.sleep(0.02)
                continue
            with self._lock:
                self.calls += 1
                self.slowest = max(self.slowest, time.monotonic() - begun)
            return told


def check(federation: Federation, clients: Clients) -> None:
    """Assert that what was acknowledged is there once, as it was written, and nothing forgotten."""
    federation.settle()
    places: dict[str, list[str]] = {}
    for tier, entries in federation.held().items():
        for entry in entries:
            places.setdefault(entry["id"], []).append(tier)
    assert {i: tiers for i, tiers in places.items() if len(tiers) != 1} == {}
    assert clients.held.keys() - places.keys() == set()
    assert clients.forgotten & places.keys() == set()
    found: dict[str, str] = {}
    wanted = list(clients.held)
    for at in range(0, len(wanted), 500):
        told = federation.router.call("read", ids=wanted[at : at + 500])
        found |= {record["id"]: record["content"] for record in told["records"]}
    assert found == clients.held
    for session in sorted(clients.sessions)[:20]:
        told = federation.router.call("timeline", where={"session": session})["records"]
        order = [(record["seq"], record["id"]) for record in told]
        assert order == sorted(order)
        mine = {i for i, c in clients.held.items() if c.startswith(session.rpartition("-")[0] + " ")}
        assert {record["id"] for record in told} <= mine | clients.forgotten


def whole(caller: Caller) -> dict[str, dict[str, Any]]:
    """Every record of a service with all that belongs to it, but for its etag."""
    ids = [entry["id"] for entry in caller.entries()]
    found: dict[str, dict[str, Any]] = {}
    for at in range(0, len(ids), 200):
        for record in caller.call("read", ids=ids[at : at + 200])["records"]:
            found[record["id"]] = {name: value for name, value in record.items() if name != "etag"}
    return found


def _sentence(number: int) -> str:
    dice = random.Random(number)
    return " ".join(dice.choice(_WORDS) for _ in range(12))
