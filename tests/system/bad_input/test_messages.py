"""Messages that are no calls are told apart on every server, and odd ones that are calls are taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602
WIDTH = 8
INFINITE = "@1e400@"

CALL = b'{"jsonrpc":"2.0","id":1,"method":"memory/timeline","params":{"limit":%s}}'
UNREADABLE = {
    "nothing": b"",
    "garbage": b"memory/timeline",
    "cut off": CALL[:-3],
    "NaN": CALL % b"NaN",
    "Infinity": CALL % b"Infinity",
    "minus Infinity": CALL % b"-Infinity",
    "invalid UTF-8": CALL % b'"\xff"',
    "a surrogate in UTF-8": CALL % b'"\xed\xa0\x80"',
    "a NUL between tokens": CALL % b"\0",
    "a control character in a text": CALL % b'"a\nb"',
    "single quotes": CALL % b"'1'",
    "a trailing comma": CALL % b"1,",
    "two values": CALL % b"1" + CALL % b"1",
    "UTF-16": (CALL % b"1").decode().encode("utf-16"),
    "deep arrays": CALL % (b"[" * 100_000 + b"]" * 100_000),
    "deep objects": CALL % (b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "an integer of 10,000 digits": CALL % (b"9" * 10_000),
}


@pytest.mark.parametrize("label", UNREADABLE)
def test_what_is_no_json_is_a_parse_error(target: Any, label: str) -> None:
    response = json.loads(target.exchange(UNREADABLE[label]))
    assert (response["error"]["code"], response["id"]) == (PARSE, None)
    target.assert_unchanged()


INVALID = {
    "a batch": [{"jsonrpc": "2.0", "id": 1, "method": "memory/timeline", "params": {}}],
    "an empty batch": [],
    "a text": "memory/timeline",
    "null": None,
    "no version": {"id": 1, "method": "memory/timeline"},
    "another version": {"jsonrpc": "1.0", "id": 1, "method": "memory/timeline"},
    "no method": {"jsonrpc": "2.0", "id": 1},
    "a number as method": {"jsonrpc": "2.0", "id": 1, "method": 7},
    "an object as id": {"jsonrpc": "2.0", "id": {}, "method": "memory/timeline"},
    "a boolean as id": {"jsonrpc": "2.0", "id": True, "method": "memory/timeline"},
    "1e400 as id": {"jsonrpc": "2.0", "id": INFINITE, "method": "memory/timeline"},
}


@pytest.mark.parametrize("label", INVALID)
def test_json_that_is_no_request_is_an_invalid_request(target: Any, label: str) -> None:
    assert target.send(INVALID[label]) == REQUEST
    target.assert_unchanged()


@pytest.mark.parametrize(
    "method",
    ["", "nothing", "../recall", "recall ", "RECALL", "recall\0", "\ud800", "x" * 100_000],
    ids=ascii,
)
def test_a_method_that_there_is_not_is_told_apart(target: Any, method: str) -> None:
    assert target.code(method, {}) == METHOD
    target.assert_unchanged()


def test_of_equal_names_the_last_counts(target: Any) -> None:
    assert target.send(CALL % b'-1,"limit":1') is None
    assert target.send(CALL % b'1,"limit":-1') == PARAMS
    target.assert_unchanged()


def test_a_huge_limit_of_a_timeline_is_no_limit(target: Any) -> None:
    where = {"session": target.canaries[0]["session"]}
    found = target.call("timeline", limit=10**30, where=where)["records"]
    assert [record["id"] for record in found] == [canary["id"] for canary in target.canaries]
    target.assert_unchanged()


def test_unknown_parameters_and_fields_are_ignored(target: Any) -> None:
    odd = {"surprise": {"\ud800": [INFINITE, "\0"]}, "": None}
    record = {"id": f"odd/{target.name}", "content": "kept", "etag": 7, "score": "high", **odd}
    assert target.code("remember", {"records": [record], **odd}) is None
    [kept] = target.call("timeline", where={"id": record["id"]}, **{"": 1})["records"]
    assert kept["content"] == "kept"
    assert not kept.keys() & {"surprise", "", "score"}
    assert target.call("forget", ids=[record["id"]], **{"": 1})["forgotten"] == 1
    target.assert_unchanged()


def test_a_vector_of_zeros_is_kept_and_breaks_no_search(target: Any) -> None:
    record = {
        "id": f"zeros/{target.name}",
        "content": "zeros",
        "embedding": [0.0] * WIDTH,
        "session": "zeros",
    }
    target.call("remember", records=[record])
    where = {"session": "zeros"}
    [kept] = target.call("timeline", where=where, embeddings=True)["records"]
    assert kept["embedding"] == record["embedding"]
    for vector in ([0.0] * WIDTH, [1.0] * WIDTH):
        found = target.call("recall", where=where, embedding=vector)["records"]
        assert all(0 <= one["score"] <= 1 for one in found)
    target.call("forget", where=where)
    target.assert_unchanged()
