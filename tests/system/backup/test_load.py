"""A backup that is made while everything moves: what it holds is a whole memory of its moment."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from a2m_cli import exporting
from a2m_cli.backup import back_up
from a2m_cli.restore import Wanted, restore
from a2m_protocol.client import Client, SyncClient

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

WRITERS = 4
BEFORE, DURING = 250, 500


@dataclass
class Diary:
    """What writers were told, in the order of being told."""

    turns: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    facts: dict[str, int] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    groups: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def copy(self) -> Diary:
        return Diary(
            {session: [*ids] for session, ids in dict(self.turns).items()},
            {**self.facts},
            {*self.forgotten},
            {group: {*ids} for group, ids in dict(self.groups).items()},
        )


class Writer:
    """Sessions of its own: turns that spill, pairs that stay together, facts rewritten, things forgotten."""

    def __init__(self, federation: Any, number: int, stop: threading.Event) -> None:
        self.diary = Diary()
        self.written = 0
        self._federation = federation
        self._random = random.Random(number)
        self._number = number
        self._stop = stop

    def run(self) -> None:
        with SyncClient.http(
            self._federation.url, token_file=self._federation.token_file, timeout=60.0, retries=5
        ) as client:
            while not self._stop.is_set():
                self._step(client)

    def _step(self, client: Any) -> None:
        self.written += 1
        number = self.written
        session = f"w{self._number}-s{self._random.randrange(3)}"
        match self._random.randrange(10):
            case 0:
                key = f"w{self._number}/{self._random.randrange(5)}"
                # A fact counts up, so that an older value is told from a newer one.
                value = self.diary.facts.get(key, 0) + 1
                client.remember([{"id": f"{key}-{value}", "content": str(value), "key": key}])
                self.diary.facts[key] = value
            case 1 if any(self.diary.turns.values()):
                ids = [i for held in self.diary.turns.values() for i in held if i not in self.diary.forgotten]
                gone = self._random.choice(ids)
                client.forget(ids=[gone])
                self.diary.forgotten.add(gone)
            case 2:
                client.close_session(session)
            case _:
                group = f"w{self._number}-g{number}"
                pair = [f"w{self._number}-{number}-{half}" for half in "ab"]
                turns = [{"id": i, "content": i, "session": session, "group": group} for i in pair]
                client.remember(turns)
                self.diary.turns[session] += pair
                self.diary.groups[group] |= set(pair)


def test_a_backup_under_load_restores_to_all_that_was_acknowledged_before_it_began(
    make_federation: Callable[[], Any],
    tmp_path: Path,
    poll: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = make_federation(), make_federation()
    stop = threading.Event()
    writers = [Writer(first, number, stop) for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as threads:
        ends = [threads.submit(writer.run) for writer in writers]
        try:
            poll("some writing", written_by(writers, BEFORE, ends), 60.0)
            with monkeypatch.context() as patched:
                hurry_slowly(patched)
                before = [writer.diary.copy() for writer in writers]
                made = back_up(first.target(), tmp_path / "b.zip", quiet=True)
            poll("more writing", written_by(writers, DURING, ends), 60.0)
        finally:
            stop.set()
        for end in ends:
            end.result()
    after = [writer.diary for writer in writers]
    assert made.manifest.tiers.keys() >= {"working", "episodic"}

    done = restore(second.target(), Wanted(made.path), quiet=True)
    assert not done.failed
    second.settle(poll)
    held = {str(record["id"]): record for record in second.held()}
    places = second.places()
    assert {len(tiers) for tiers in places.values()} == {1}
    for early, late in zip(before, after, strict=True):
        for session, ids in early.turns.items():
            missing = [i for i in ids if i not in held and i not in late.forgotten]
            assert missing == [], session
        assert [i for i in early.forgotten if i in held] == []
        for group, ids in late.groups.items():
            assert len({places[i][0] for i in ids if i in places}) <= 1, group
        for session, ids in late.turns.items():
            replayed = second.client.timeline(where={"session": session})["records"]
            assert [r["id"] for r in replayed] == [i for i in ids if i in held]
        for key, value in early.facts.items():
            fact = second.client.fetch(key)["record"]
            assert value <= int(fact["content"]) <= late.facts[key]
            assert fact["revision"] == int(fact["content"]) - 1
    assert second.json("restore", made.path)["written"] == 0


def written_by(writers: list[Writer], least: int, ends: list[Future[None]]) -> Callable[[], bool]:
    """Whether all have written their share, or one has ended."""
    return lambda: any(e.done() for e in ends) or all(w.written >= least // WRITERS for w in writers)


def hurry_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a backup read in small pages, with time between them for records to move."""
    call = Client.call

    async def slowly(self: Client, method: str, *given: Any, **more: Any) -> Any:
        if method == "memory/list":
            await asyncio.sleep(0.05)
        return await call(self, method, *given, **more)

    monkeypatch.setattr(exporting, "_PAGE", 20)
    monkeypatch.setattr(Client, "call", slowly)
