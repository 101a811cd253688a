"""Every limit of docs/protocol.md: what is just within is kept as it is, what is just beyond is refused."""

from __future__ import annotations

from typing import Any

import pytest

from a2m_protocol.types import MAX_CONTENT, MAX_DEPTH, MAX_METADATA, MAX_NAME, MAX_URI, MAX_WIDTH
from a2m_server.identity import LOOPBACK

NAMES = ("id", "key", "session", "group", "role", "owner", "media_type")


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def sized(size: int) -> dict[str, Any]:
    return {"a": "x" * (size - len('{"a":""}'))}


CASES: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
    *((name, {name: "n" * MAX_NAME}, {name: "n" * (MAX_NAME + 1)}, -32602) for name in NAMES),
    *((name, {name: "ü" * MAX_NAME}, {name: ""}, -32602) for name in NAMES),
    ("uri", {"uri": "u" * MAX_URI}, {"uri": "u" * (MAX_URI + 1)}, -32602),
    ("content", {"content": "ü" * MAX_CONTENT}, {"content": "x" * (MAX_CONTENT + 1)}, -32006),
    ("metadata", {"metadata": sized(MAX_METADATA)}, {"metadata": sized(MAX_METADATA + 1)}, -32602),
    ("metadata", {"metadata": nested(MAX_DEPTH)}, {"metadata": nested(MAX_DEPTH + 1)}, -32602),
    ("embedding", {"embedding": [1.0] * MAX_WIDTH}, {"embedding": [1.0] * (MAX_WIDTH + 1)}, -32602),
]


@pytest.mark.parametrize(("field", "within", "beyond", "code"), CASES)
@pytest.mark.parametrize("trusted", [True, False])
async def test_what_a_record_may_hold(
    memory: Any, connect: Any, field: str, within: Any, beyond: Any, code: int, trusted: bool
) -> None:
    if field == "owner" and not trusted:
        pytest.skip("who is not told apart has no owner: it is ignored")
    caller = memory if trusted else connect(to=memory, caller=LOOPBACK)
    kept, wrong = {"content": "x", **within}, {"content": "x", **beyond}
    assert len(await caller.remember(kept)) == 1
    told, message = await caller.error("remember", records=[{"content": "beside"}, wrong])
    assert (told, message.startswith(f"records[1].{field}")) == (code, True), message
    if trusted:
        records = (await memory.ok("timeline", embeddings=True))["records"]
        assert [{name: record.get(name) for name in kept} for record in records] == [kept]


async def test_how_many_records_a_call_may_write_and_a_recall_return(memory: Any) -> None:
    limits = (await memory.ok("describe"))["limits"]
    most, recalled = limits["max_records_per_call"], limits["max_recall_limit"]
    assert len(await memory.remember(*[{"content": "x"}] * most)) == most
    code, message = await memory.error("remember", records=[{"content": "x"}] * (most + 1))
    assert (code, f"at most {most}" in message) == (-32602, True)
    assert len(await memory.contents()) == most
    assert len((await memory.ok("recall", query="x", limit=recalled))["records"]) == most
    code, message = await memory.error("recall", query="x", limit=recalled + 1)
    assert (code, message.startswith("limit")) == (-32602, True)


@pytest.mark.parametrize("method", ["recall", "timeline", "forget"])
async def test_how_much_a_filter_may_ask(memory: Any, method: str) -> None:
    assert await memory.code(method, where={f"f{n}": n for n in range(65)}) == -32602
    assert await memory.code(method, where={"a": [*range(1_001)]}) == -32602
    await memory.ok(method, where={f"f{n}": n for n in range(64)} | {"f0": [*range(1_000)]})
    assert await memory.code("recall", embedding=[1.0] * (MAX_WIDTH + 1)) == -32602
