"""What `a2m status` makes of a server's answers."""

import pytest

from a2m_cli.rendering import console, show_due
from a2m_cli.status import assess, look
from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import Json, JsonObject

DESCRIBED: JsonObject = {
    "name": "a2m",
    "tiers": [{"name": "working", "count": 3}, {"name": "episodic", "count": 0}],
}


def test_a_tier_that_does_not_answer_has_no_count_but_a_reason() -> None:
    health = assess(DESCRIBED, {"episodic": "no route"}, 1)
    assert health.degraded
    assert health.tiers == [
        {"name": "working", "count": 3, "health": "ok"},
        {"name": "episodic", "count": None, "health": "no route"},
    ]


def test_a_server_without_tiers_is_shown_as_one() -> None:
    health = assess({"name": "working", "kind": "working", "count": 5}, {}, None)
    assert not health.degraded
    assert health.tiers == [{"name": "working", "kind": "working", "count": 5, "health": "ok"}]


async def test_a_server_is_asked_for_a_read_that_no_tier_is_left_out_of() -> None:
    asked: list[object] = []

    async def handle(message: object) -> JsonObject:
        assert isinstance(message, dict)
        asked.append((message["method"], message["params"]))
        answer: JsonObject = {"degraded": [{"tier": "working", "reason": "down"}], **DESCRIBED}
        answer["methods"] = ["memory/list"]
        if message["method"] == "memory/session/list":
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32003, "message": "no"}}
        if message["method"] == "memory/list":
            answer = {"entries": [{"id": "x", "seq": 1}], "more": True}
        return {"jsonrpc": "2.0", "id": message["id"], "result": answer}

    async with Client(LocalTransport(handle)) as client:
        health = await look(client)
    assert ("memory/timeline", {"limit": 1}) in asked
    assert (health.degraded, health.sessions, health.moving) == (True, None, True)


async def test_what_is_to_be_embedded_anew_is_counted_as_far_as_one_may() -> None:
    due: JsonObject = {"tier": "episodic", "reason": "it has vectors of another model than new"}
    entries: JsonObject = {"entries": [{"id": "x", "seq": 1}, {"id": "y", "seq": 2}], "more": True}
    allowed = True

    async def handle(message: object) -> JsonObject:
        assert isinstance(message, dict)
        methods: list[Json] = ["memory/list"] if allowed else []
        vectors: JsonObject = {"model": "new", "reembed": [due]}
        answer: JsonObject = {**DESCRIBED, "methods": methods, "embeddings": vectors}
        if message["method"] == "memory/list":
            assert allowed, "it would stand in an audit log as denied"
            anew = message["params"] == {"tier": "episodic", "without": "new"}
            answer = entries if anew else {"entries": [], "more": False}
        return {"jsonrpc": "2.0", "id": message["id"], "result": answer}

    async with Client(LocalTransport(handle)) as client:
        assert (await look(client)).reembed == ({**due, "records": 2, "more": True},)
        allowed = False
        health = await look(client)
    assert health.reembed == (due,)
    assert health.wire()["reembed"] == [due]
    assert not health.degraded


def test_what_is_to_be_embedded_anew_is_shown_with_what_to_do(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    show_due(console(), [{"tier": "episodic", "reason": "old", "records": 1_000, "more": True}])
    show_due(console(), [])
    said = capsysbinary.readouterr().out.decode()
    assert said == "\nVectors are out of date: run a2m reembed.\n  episodic (more than 1000 records): old\n"
