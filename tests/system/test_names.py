"""Hostile names are only names, on every server: kept as given, and matched by nothing but themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

SERVERS = ("memory", "working", "episodic", "semantic", "procedural", "router")
MAX_NAME = 512
LONGEST_PREFIX = 400
"""Semantic cannot tell much longer prefixes apart, and says so."""

HOSTILE = (
    "../../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    ".git/config",
    ".git",
    "refs/heads/main",
    "HEAD",
    "SKILL.md",
    "a/../b",
    "a//b",
    "C:\\Windows\\con",
    "-rf",
    "--upload-pack=touch",
    "~root",
    "$(touch x)`id`;&|>x",
    "%",
    "_",
    "a%b_c",
    "%2e%2e%2f",
    "%s%n",
    "*",
    "?",
    "[a-z]*",
    "{a,b}",
    "{tag}",
    "^.*$",
    "line\nfeed",
    "carriage\r\nreturn",
    "tab\tescape\x1b[31m",
    "\x01\x7f\x85",
    " leading and trailing ",
    " ",
    "'",
    "'; DROP TABLE records; --",
    '"quoted\\"',
    "back\\slash\\",
    "key: [yaml, {a: b}]",
    "---",
    "- item",
    "null",
    "true",
    "0",
    "1e400",
    "NaN",
    "@name:{x} -foo|bar",
    "a:b:c",
    "<script>&amp;</script>",
    "\u202etxt.exe",
    "\ufeffbom",
    "\u2028separator",
    "e\u0301 and \u00e9",
    "İstanbul ß ſ",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\uffff\ufffe\U0010ffff",
    "x" * MAX_NAME,
    "\U0001f9ed" * MAX_NAME,
)


@pytest.fixture(params=SERVERS, scope="module")
def server(request: pytest.FixtureRequest, servers: dict[str, Any]) -> Any:
    return servers[request.param]


@pytest.fixture
def neighbours(server: Any) -> Iterator[list[dict[str, Any]]]:
    """Records of ordinary names, which no hostile one may match."""
    mark = f"Z{uuid4().hex}"
    records = [
        dict.fromkeys(("id", "content", "session", "group", "key", "role"), f"{mark}/{n}")
        | {"metadata": {"name": f"{mark}/{n}"}}
        for n in range(3)
    ]
    server.call("remember", records=records)
    yield records
    server.call("forget", ids=[record["id"] for record in records])


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:40])
def test_a_hostile_name_is_kept_as_it_is_and_selects_itself_alone(
    server: Any, neighbours: list[dict[str, Any]], name: str
) -> None:
    fields = ("id", "content", "session", "group", "key", "role", "uri", "media_type")
    record = dict.fromkeys(fields, name) | {"metadata": {name: name, "name": name}}
    assert server.call("remember", records=[record])["ids"] == [name]

    selections = [
        *({"where": {field: name}} for field in ("id", "session", "group", "key", "role")),
        *({"where": {field: [name, "nobody's"]}} for field in ("id", "session")),
        {"where": {"name": name}},
        {"where": {name: name}},
        {"where": {"name": {"prefix": name[:LONGEST_PREFIX]}}},
        {"where": {"session": {"prefix": name[:LONGEST_PREFIX]}}},
    ]
    if name.rstrip("/"):
        selections.append({"key_prefix": name})
    for selected in selections:
        found = server.call("timeline", **selected)["records"]
        assert [one["id"] for one in found] == [name], selected
        assert {field: found[0][field] for field in record} == record

    fetched = server.call("fetch", key=name)["record"]
    assert fetched["id"] == name
    assert {s["session"] for s in server.call("session/list")["sessions"]} >= {name}
    recalled = server.call("recall", query=name, where={"session": name})["records"]
    assert {one["id"] for one in recalled} <= {name}

    assert server.call("forget", ids=[name], where={"session": name})["forgotten"] == 1
    assert server.call("timeline", where={"id": name})["records"] == []
    assert server.call("fetch", key=name)["record"] is None
    kept = server.call("timeline", where={"id": [n["id"] for n in neighbours]})["records"]
    assert [{field: one[field] for field in neighbours[0]} for one in kept] == neighbours
