from typing import Any

import pytest

from a2m_protocol.types import Capability
from a2m_server.identity import LOOPBACK


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ([], None),
        ([{"jsonrpc": "2.0", "id": 1, "method": "memory/describe"}], None),
        (5, None),
        (None, None),
        ({"id": 1, "method": "memory/describe"}, None),
        ({"jsonrpc": "1.0", "id": 1, "method": "memory/describe"}, None),
        ({"jsonrpc": 2.0, "id": 1, "method": "memory/describe"}, None),
        ({"jsonrpc": "2.0", "id": 1}, None),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "memory/describe"}, None),
        ({"jsonrpc": "2.0", "id": {}, "method": "memory/describe"}, None),
        ({"jsonrpc": "2.0", "id": [1], "method": "memory/describe"}, None),
    ],
)
async def test_what_is_no_request_is_invalid_and_answered_with_a_null_id(
    memory: Any, message: object, number: object
) -> None:
    response = await memory.send(message)
    assert response["error"]["code"] == -32600
    assert response["id"] is number


@pytest.mark.parametrize("number", [0, -1, 1.5, "", "x", None, 2**70])
async def test_an_id_comes_back_as_it_was(memory: Any, number: object) -> None:
    response = await memory.send({"jsonrpc": "2.0", "id": number, "method": "memory/timeline"})
    assert response["id"] == number
    assert response["result"] == {"records": []}


@pytest.mark.parametrize("params", [[], ["x"], "x", 5, None])
async def test_parameters_are_by_name(memory: Any, params: object) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "memory/timeline", "params": params}
    assert (await memory.send(message))["error"]["code"] == -32602


@pytest.mark.parametrize(
    "method", ["memory/nothing", "memory", "", "remember", "tools/list", "memory/\ud800"]
)
async def test_a_method_that_is_not_known_is_not_found(memory: Any, method: str) -> None:
    response = await memory.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": []})
    assert response["error"]["code"] == -32601


async def test_a_notification_runs_and_is_not_answered(memory: Any) -> None:
    params = {"records": [{"content": "quietly"}]}
    assert await memory.send({"jsonrpc": "2.0", "method": "memory/remember", "params": params}) is None
    assert await memory.contents() == ["quietly"]


@pytest.mark.parametrize("params", [{}, [], {"records": 5}])
async def test_a_notification_that_fails_is_not_answered(memory: Any, params: object) -> None:
    assert await memory.send({"jsonrpc": "2.0", "method": "memory/remember", "params": params}) is None


@pytest.mark.parametrize("method", ["promote", "consolidate"])
async def test_a_method_of_an_undeclared_capability_is_not_supported(memory: Any, method: str) -> None:
    assert await memory.code(method) == -32003


@pytest.mark.parametrize(
    "method",
    [
        "reinforce",
        "fetch",
        "session/list",
        "session/close",
        "events",
        "events/subscribe",
        "events/unsubscribe",
        "summarize",
        "promote",
    ],
)
async def test_a_server_of_core_alone_supports_no_other_method(varied: Any, method: str) -> None:
    core = varied(capabilities=frozenset({Capability.CORE}))
    assert await core.code(method) == -32003


async def test_unknown_parameters_are_ignored(memory: Any) -> None:
    await memory.ok("remember", records=[{"content": "x", "colour": {"any": 1}}], surprise=[None])
    assert (await memory.ok("recall", surprise=1, another="\ud800"))["records"][0]["content"] == "x"


async def test_the_methods_of_a_read_only_server_that_write_are_refused_whatever_is_given(
    varied: Any,
) -> None:
    reader = varied(read_only=True)
    for params in ({}, {"records": 5}, {"tier": "x"}):
        assert await reader.code("remember", **params) == -32004
        assert await reader.code("forget", **params) == -32004
        assert await reader.code("summarize", **params) == -32004
    assert (await reader.ok("recall"))["records"] == []
    assert (await reader.ok("timeline"))["records"] == []


async def test_a_read_only_server_that_does_not_summarize_does_not_support_it(varied: Any) -> None:
    reader = varied(read_only=True, capabilities=frozenset({Capability.CORE}))
    assert await reader.code("summarize", query="x") == -32003


async def test_an_exception_that_is_no_error_of_ours_is_not_swallowed(memory: Any, monkeypatch: Any) -> None:
    async def broken(scope: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(memory.dispatcher._store, "sessions", broken)
    with pytest.raises(RuntimeError):
        await memory.ok("session/list")


async def test_describe_is_of_the_peer(connect: Any, memory: Any) -> None:
    other = connect(to=memory, caller=LOOPBACK)
    assert "scopes" in (await memory.dispatcher.describe(memory.peer))["capabilities"]
    assert "scopes" not in (await memory.dispatcher.describe(other.peer))["capabilities"]
