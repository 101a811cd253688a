import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2m_protocol.errors import A2MError
from a2m_server.audit import BEGINNING, TAIL, AuditLog, verify
from a2m_server.auditing import denied, entry_of
from a2m_server.dispatch import Dispatcher
from a2m_server.exchange import Exchange
from a2m_server.identity import ANONYMOUS, LOCAL, Peer, Role, principal
from a2m_server.memory import SEARCHING, MemoryTier
from a2m_server.metrics import Metrics
from a2m_server.values import StoreInfo

ANN = principal("ann-laptop", "ann", frozenset({Role.AGENT}), (), pooled=True)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def others(path: Path) -> list[Path]:
    return [other for other in path.parent.iterdir() if other != path]


async def written(path: Path, *methods: str) -> list[Any]:
    """A log with a line a method, as it is on disk."""
    audit = AuditLog(path)
    await audit.open()
    for method in methods:
        audit.note({"method": method})
    await audit.close()
    return lines_of(path)


async def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    await written(path, "a", "b")
    lines = await written(path, "c")
    assert [line["method"] for line in lines] == ["a", "b", "c"]
    assert [line["line"] for line in lines] == [1, 2, 3]
    assert [line["previous"] for line in lines] == [BEGINNING, lines[0]["digest"], lines[1]["digest"]]
    verified = verify(path)
    assert (verified.lines, verified.head, verified.problem) == (3, lines[2]["digest"], None)
    assert path.stat().st_mode & 0o777 == 0o600


def swapped(lines: list[str]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def renamed(lines: list[str]) -> None:
    lines[1] = lines[1].replace('"b"', '"x"')


def taken_out(lines: list[str]) -> None:
    del lines[1]


def doubled(lines: list[str]) -> None:
    lines.insert(1, lines[1])


def beheaded(lines: list[str]) -> None:
    del lines[0]


def scrawled(lines: list[str]) -> None:
    lines[1] = "[]\n"


@pytest.mark.parametrize("tamper", [swapped, renamed, taken_out, doubled, beheaded, scrawled])
async def test_whatever_is_done_to_a_line_shows(tmp_path: Path, tamper: Callable[[list[str]], None]) -> None:
    path = tmp_path / "audit.jsonl"
    await written(path, "a", "b", "c")
    lines = path.read_text().splitlines(keepends=True)
    tamper(lines)
    path.write_text("".join(lines))
    verified = verify(path)
    assert verified.problem is not None
    assert verified.lines <= 2


async def test_an_end_that_was_cut_off_shows_against_a_digest_noted_before(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    noted = (await written(path, "a", "b"))[-1]["digest"]
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert verify(path).problem is None
    assert "cut off" in str(verify(path, noted).problem)
    await written(path, "c")
    assert "cut off" in str(verify(path, noted).problem)


async def test_a_line_that_a_kill_left_unfinished_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await written(path, "a", "b")
    with path.open("a") as file:
        file.write('{"line":3,"meth')
    assert verify(path).problem == "line 3 is not whole"
    assert [line["method"] for line in await written(path, "c")] == ["a", "b", "c"]
    assert verify(path).problem is None


async def test_a_file_that_is_no_log_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for text in ("dear diary\n", "dear diary\nand more", '{"precious": 1}', '{"precious": 1}\n'):
        path.write_text(text)
        with pytest.raises(A2MError, match="does not end as an audit log does"):
            await written(path, "a")
        assert path.read_text() == text


async def test_a_first_line_that_was_not_finished_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await written(path, "a")
    path.write_text(path.read_text()[:30])
    assert [line["method"] for line in await written(path, "b")] == ["b"]


async def test_a_log_that_could_not_be_opened_again_is_tried_until_it_can(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    await audit.open()
    failed, opening = threading.Event(), os.open

    def refusing(*_: Any, **__: Any) -> int:
        failed.set()
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", refusing)
    path.rename(tmp_path / "old")
    audit.note({"method": "a"})
    await asyncio.to_thread(failed.wait, 10)
    monkeypatch.setattr(os, "open", opening)
    audit.note({"method": "b"})
    async with asyncio.timeout(10):
        while not path.exists() or not lines_of(path):  # noqa: ASYNC110 another's file
            await asyncio.sleep(0.01)
    await audit.close()
    assert [line["method"] for line in lines_of(path)] == ["a", "b"]


async def test_a_close_in_mid_write_writes_no_line_twice(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "audit.jsonl"
    begun, sync = threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        begun.set()
        time.sleep(0.1)
        sync(descriptor)

    audit = AuditLog(path)
    await audit.open()
    monkeypatch.setattr(os, "fsync", slow)
    audit.note({"method": "a"})
    await asyncio.to_thread(begun.wait, 10)
    audit.note({"method": "b"})
    await audit.close()
    assert [line["method"] for line in lines_of(path)] == ["a", "b"]
    assert verify(path).problem is None


async def test_what_a_disk_does_not_take_waits_until_it_does(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "audit.jsonl"
    failed, sync = threading.Event(), os.fsync

    def full(_: int) -> None:
        failed.set()
        raise OSError(errno.ENOSPC, "no space left")

    audit = AuditLog(path)
    await audit.open()
    monkeypatch.setattr(os, "fsync", full)
    audit.note({"method": "a"})
    await asyncio.to_thread(failed.wait, 10)
    audit.note({"method": "b"})
    monkeypatch.setattr(os, "fsync", sync)
    await audit.close()
    assert [line["method"] for line in lines_of(path)] == ["a", "b"]
    assert verify(path).problem is None


async def test_the_same_again_and_again_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    await audit.open()
    for _ in range(1_000):
        audit.note(denied())
    audit.note({"method": "b"})
    audit.note(denied())
    await audit.close()
    lines = lines_of(path)
    assert len(lines) < 10
    assert sum(line.get("times", 1) for line in lines if line["method"] == "HTTP") == 1_001


async def test_a_line_is_never_longer_than_what_is_read_of_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    long = "x" * 2_000_000
    reader = Peer(principal("r", "r", frozenset({Role.READER}), (), pooled=True), client="c" * 128)
    await call(
        path, reader, request("forget", source=long, since=long, tier=long, session=long, ids=[long] * 500)
    )
    emoji = "\U0001f600" * 2_000
    lines = await call(path, reader, request("forget", source=emoji, ids=[emoji] * 500))
    assert [line["outcome"] for line in lines] == [-32005, -32005]
    assert max(map(len, path.read_text().splitlines())) < TAIL


async def test_a_damaged_log_is_kept_aside_and_another_begun(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await written(path, "a", "b")
    with path.open("a") as file:
        file.write("garbage\n")
    damaged = path.read_text()
    assert [line["line"] for line in await written(path, "c")] == [1]
    assert damaged in {other.read_text() for other in others(path)}


@pytest.mark.parametrize("taken", ["removed", "replaced"])
async def test_a_log_that_is_taken_away_under_a_server_is_begun_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, taken: str
) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    await audit.open()
    path.rename(tmp_path / "old")
    if taken == "replaced":
        path.touch()
    audit.note({"method": "a"})
    await audit.close()
    assert [line["method"] for line in lines_of(path)] == ["a"]
    assert "was taken away" in caplog.text


async def test_two_servers_do_not_share_a_log(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    await audit.open()
    try:
        with pytest.raises(A2MError, match="in use"):
            await written(tmp_path / "audit.jsonl", "a")
    finally:
        await audit.close()


async def test_lines_are_on_disk_soon(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    await audit.open()
    try:
        for at in range(1_000):
            audit.note({"method": str(at)})
        async with asyncio.timeout(10):
            while verify(path).lines < 1_000:  # noqa: ASYNC110 another's file
                await asyncio.sleep(0.01)
        assert verify(path).problem is None
    finally:
        await audit.close()


async def call(path: Path, peer: Peer, *messages: object) -> list[Any]:
    """Messages to a server with an audit log, and the lines that came of them."""
    audit = AuditLog(path)
    dispatcher = Dispatcher(MemoryTier())
    exchange = Exchange(dispatcher, 10.0, Metrics(), audit)
    await audit.open()
    for message in messages:
        await exchange.answer(json.dumps(message).encode(), peer)
    await audit.close()
    await dispatcher.close()
    return lines_of(path)


def request(method: str, **params: Any) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": f"memory/{method}", "params": params}


async def test_writes_and_forgets_are_noted_without_what_they_say(tmp_path: Path) -> None:
    peer = Peer(ANN, client="notebook/2")
    record = {"id": "x", "content": "SECRET one", "key": "SECRET/key", "metadata": {"a": "SECRET"}}
    lines = await call(
        tmp_path / "audit.jsonl",
        peer,
        request("remember", records=[record, {"content": "SECRET two"}]),
        request("recall", query="SECRET"),
        request("timeline"),
        request("forget", ids=["x"]),
        request("forget", query="SECRET two"),
    )
    assert [line["method"] for line in lines] == ["memory/remember", "memory/forget", "memory/forget"]
    assert "SECRET" not in (tmp_path / "audit.jsonl").read_text()
    for line in lines:
        assert (line["principal"], line["roles"], line["client"]) == ("ann-laptop", ["agent"], "notebook/2")
        assert line["outcome"] == "ok"
    assert (lines[0]["ids"][0], lines[0]["count"]) == ("x", 2)
    assert (lines[1]["ids"], lines[1]["forgotten"]) == (["x"], 1)
    assert lines[2]["forgotten"] == 1


async def test_what_is_denied_is_noted_whatever_the_method(tmp_path: Path) -> None:
    lines = await call(
        tmp_path / "audit.jsonl",
        Peer(ANN),
        request("recall", owner="bob"),
        request("list"),
        request("remember", records=[{"content": "x", "owner": "bob"}]),
        request("remember", records=[]),
        request("recall", limit="many"),
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        [],
        "odd",
    )
    assert [(line["method"], line["outcome"]) for line in lines] == [
        ("memory/recall", -32005),
        ("memory/list", -32005),
        ("memory/remember", -32005),
    ]


async def test_what_was_removed_is_named_and_a_dry_run_is_told_from_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    dispatcher = Dispatcher(Purging("t"))
    exchange = Exchange(dispatcher, 10.0, Metrics(), audit)
    await audit.open()
    record = {"id": "a", "content": "red apple", "provenance": {"source": "web"}}
    for params in (
        (
            "remember",
            {"records": [record, {"id": "b", "content": "red pear"}, {"id": "c", "content": "fig"}]},
        ),
        ("purge", {"source": "web", "dry": True}),
        ("purge", {"source": "web"}),
        ("forget", {"query": "red"}),
        ("tombstones", {"ids": ["a"]}),
        ("tombstones", {"tombstones": [{"id": "c", "reason": "forgotten", "seq": 2**52}]}),
    ):
        await exchange.answer(json.dumps(request(params[0], **params[1])).encode(), Peer(LOCAL))
    await audit.close()
    await dispatcher.close()
    told = [(line["method"], line["ids"], line.get("dry")) for line in lines_of(path)]
    assert told == [
        ("memory/remember", ["a", "b", "c"], None),
        ("memory/purge", ["a"], True),
        ("memory/purge", ["a"], None),
        ("memory/forget", ["b"], None),
        ("memory/tombstones", ["c"], None),
    ]


class Purging(MemoryTier):
    async def info(self) -> StoreInfo:
        return replace(await super().info(), extensions=SEARCHING | {"purge"})


async def test_a_notification_that_writes_is_noted(tmp_path: Path) -> None:
    message = request("remember", records=[{"content": "x"}])
    del message["id"]
    lines = await call(tmp_path / "audit.jsonl", Peer(ANONYMOUS), message)
    assert [(line["method"], line["outcome"], line["principal"]) for line in lines] == [
        ("memory/remember", "not told", None)
    ]


@pytest.mark.parametrize("message", [None, 5, [], {}, {"method": []}, {"method": "x", "params": []}])
def test_what_is_no_call_is_not_noted(message: object) -> None:
    assert entry_of(message, {"error": {"code": -32600}}, Peer(ANN)) is None
