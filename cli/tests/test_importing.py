"""Importing goes on over failures, tells what became of each record, and changes nothing the second time."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from a2m_cli import exporting
from a2m_cli.connection import CliError
from a2m_cli.formats import Item, read_items
from a2m_cli.importing import Importer, Report, check, items_of, survey
from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import A2MError, JsonObject, TransportError, unavailable
from a2m_server.dispatch import Dispatcher
from a2m_server.identity import LOCAL, Peer
from a2m_server.memory import MemoryTier


class Server:
    """An in-memory server in this process; `failures` are raised instead of its next answers."""

    def __init__(self, *, after: bool = False) -> None:
        self.dispatcher = Dispatcher(MemoryTier())
        self.failures: list[A2MError] = []
        self.after = after
        self.calls = 0

    def client(self) -> Client:
        peer = Peer(LOCAL)

        async def handle(message: object) -> JsonObject | None:
            self.calls += 1
            if self.failures and not self.after:
                raise self.failures.pop(0)
            answer = await self.dispatcher.handle(message, peer)
            if self.failures:
                raise self.failures.pop(0)
            return answer

        return Client(LocalTransport(handle))


def turns(count: int, *, session: str = "s", **more: object) -> list[Item]:
    lines = [
        {"id": f"{session}{at}", "session": session, "content": f"turn {at}", **more} for at in range(count)
    ]
    return list(read_items((json.dumps(line).encode() for line in lines), "file"))


async def bring(server: Server, items: Sequence[Item], **options: object) -> Report:
    async with server.client() as client:
        return await Importer(client, **options).run(items, size=10)


async def contents(server: Server) -> list[str]:
    async with server.client() as client:
        return [str(r["content"]) for r in (await client.timeline())["records"]]


async def test_everything_is_written_in_order_and_a_second_time_changes_nothing() -> None:
    server = Server()
    items = turns(35)
    first = await bring(server, items)
    assert (first.written, first.there, first.refused) == (35, 0, [])
    assert await contents(server) == [f"turn {at}" for at in range(35)]
    again = await bring(server, items)
    assert (again.written, again.there, again.refused) == (0, 35, [])


async def test_an_import_goes_on_when_the_server_was_away() -> None:
    server = Server()
    server.failures = [
        TransportError("refused", maybe_received=False),
        unavailable("the store", "restarting"),
        TransportError("reset", maybe_received=True),
    ]
    told: list[str] = []
    report = await bring(server, turns(5), listener=lambda _, waiting: told.append(waiting))
    assert report.written == 5
    assert next(waiting for waiting in told if waiting) == "refused"


async def test_a_write_whose_answer_was_lost_is_found_to_be_there() -> None:
    server = Server(after=True)
    server.failures = [TransportError("reset", maybe_received=True)]
    report = await bring(server, turns(5))
    assert (report.written, report.there) == (0, 5)


async def test_an_import_gives_up_when_its_patience_is_over() -> None:
    server = Server()
    server.failures = [TransportError("refused", maybe_received=False)] * 100
    with pytest.raises(TransportError, match="refused"):
        await bring(server, turns(5), patience=0.0)


async def test_one_record_that_a_server_refuses_does_not_keep_out_its_neighbours() -> None:
    server = Server()
    items = turns(8)
    items[3] = Item(items[3].line, {**items[3].fields, "content": 5})
    report = await bring(server, items)
    assert report.written == 7
    (refusal,) = report.refused
    assert refusal.item is items[3]
    assert "content" in refusal.reason
    assert report.failed


async def test_what_was_forgotten_is_not_brought_back() -> None:
    server = Server()
    items = turns(3)
    await bring(server, items)
    async with server.client() as client:
        await client.forget(ids=["s1"])
    report = await bring(server, items)
    assert (report.there, report.reasons, report.failed) == (2, {"forgotten": 1}, False)
    assert await contents(server) == ["turn 0", "turn 2"]


async def test_an_error_that_is_not_about_the_records_ends_the_import() -> None:
    server = Server()
    server.failures = [A2MError(-32603, "a bug")]
    with pytest.raises(A2MError, match="a bug"):
        await bring(server, turns(3))


async def test_an_export_is_imported_without_loss(tmp_path: Path) -> None:
    server, other = Server(), Server()
    items = turns(7, speaker="Ann", salience=2.5)
    await bring(server, items)
    async with server.client() as client:
        await client.remember(
            [
                {"content": "old", "key": "a/b", "id": "k1", "owner": "ann", "embedding": [0.1, 3e7]},
                {"content": "new é\u2028", "key": "a/b", "id": "k2", "owner": "ann", "embedding": [0.2, 3e7]},
                {"uri": "file:///x", "media_type": "text/plain", "content": "", "group": "g"},
            ]
        )
        await client.recall("turn")
        exported = [line async for line in exporting.lines(client)]
    path = tmp_path / "export.jsonl"
    path.write_bytes(b"".join(exported))
    assert len(exported) == 1 + 7 + 2
    report = await bring(other, list(items_of([path], 0)))
    assert report.written == 9
    async with other.client() as client:
        again = [line async for line in exporting.lines(client)]
    assert [_record(line) for line in again[1:]] == [_record(line) for line in exported[1:]]
    keyed = next(record for line in exported[1:] if (record := _record(line)).get("key"))
    assert (keyed["revision"], keyed["aliases"], keyed["owner"]) == (1, ["k2"], "ann")
    assert keyed["embedding"] is not None


async def test_an_export_of_several_pages_holds_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_PAGE", 10)
    monkeypatch.setattr(exporting, "_READ", 3)
    server = Server()
    await bring(server, turns(35))
    async with server.client() as client:
        exported = [json.loads(line) async for line in exporting.lines(client)]
    assert [record["id"] for record in exported[1:]] == [f"s{at}" for at in range(35)]


@pytest.mark.parametrize(
    ("fields", "described", "complaint"),
    [
        ({}, {"extensions": []}, "extension transfer"),
        ({}, {"extensions": ["list", "transfer"], "methods": ["memory/recall"]}, "operators.*--token-file"),
        (
            {"tier": "cold"},
            {"extensions": ["transfer"], "tiers": [{"name": "working"}]},
            "cold.*--ignore-tiers",
        ),
        ({"owner": "ann"}, {"extensions": ["transfer"], "capabilities": ["core"]}, "A2M_ROUTER_TOKEN_FILE"),
    ],
)
def test_what_a_server_could_not_keep_is_refused_before_anything_is_written(
    fields: JsonObject, described: JsonObject, complaint: str
) -> None:
    found = survey([Item(1, {"id": "x", **fields})])
    with pytest.raises(CliError, match=complaint):
        check(found, described)


def _record(line: bytes) -> JsonObject:
    return json.loads(line)
