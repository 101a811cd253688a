"""Files are recognised by their first line, and the first wrong line is named."""

import json
from collections.abc import Sequence

import pytest

from a2m_cli.formats import TRANSIENT, FormatError, Item, header, read_items

TURN = {"id": "t1", "session": "s", "role": "user", "content": "hello"}
CHAT = {"conversation": "c", "messages": [{"role": "user", "content": "hello"}]}
RECORD = {
    "id": "r1",
    "content": "x",
    "created_at": "2026-03-01T10:00:00.000Z",
    "seq": 1_772_359_200_000_000,
    "etag": "e",
    "score": 0.5,
    "arrival": "working e",
    "tier": "semantic",
    "revision": 3,
    "key": "k",
    "embedding": [0.5, 1.5],
    "embedding_model": "m",
    "provenance": {"source": "s"},
    "status": "superseded",
    "aliases": ["old"],
}


def read(*lines: object) -> list[Item]:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(read_items(texts, "file"))


def test_each_format_is_recognised() -> None:
    assert [item.id for item in read(TURN)] == ["t1"]
    assert [item.session for item in read(CHAT, CHAT)] == ["c", "c"]
    assert [item.id for item in read(header("a2m", "now"), RECORD)] == ["r1"]


def test_an_exported_record_keeps_everything_but_what_a_server_makes_anew() -> None:
    (item,) = read(header("a2m", "now"), RECORD)
    assert item.fields == {name: value for name, value in RECORD.items() if name not in TRANSIENT}
    assert item.tier == "semantic"


def test_empty_lines_count_but_are_skipped() -> None:
    assert [item.line for item in read(b"\n", TURN, b"  \n", {**TURN, "id": "t2"})] == [2, 4]


def test_a_file_of_nothing_gives_nothing() -> None:
    assert read(b"\n") == []


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([TURN, b"{"], "file, line 2: not a JSON value"),
        ([TURN, b"[]"], "file, line 2: expected a JSON object"),
        ([b"\xff"], "file, line 1: not a JSON value: invalid UTF-8"),
        ([{"question": "?"}], "file, line 1: this is no format that can be imported"),
        ([CHAT, TURN], "file, line 2: messages: expected an array"),
        ([TURN, {**TURN, "content": 5}], "file, line 2: content: expected a string"),
        ([TURN, {**TURN, "content": "a\x00b"}], "file, line 2: record.content: holds a NUL"),
        ([b'{"content": "\\ud800"}'], "file, line 1: record.content: holds a lone surrogate"),
        ([{**TURN, "id": "x" * 600}], "file, line 1: record.id"),
        ([{**TURN, "extra": "x" * 70_000}], "file, line 1: record.metadata: is longer than"),
        ([{**header("a2m", "now"), "version": 2}], "file, line 1: version: this release reads version 1"),
        ([{"format": "other"}], "file, line 1: format: expected 'a2m-export'"),
        ([header("a2m", "now"), {"id": "x", "content": ""}], "file, line 2: created_at: is missing"),
        ([header("a2m", "now"), {**RECORD, "revision": -1}], "file, line 2: record.revision"),
    ],
)
def test_a_wrong_line_is_named_with_the_reason(lines: Sequence[object], complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint.replace("[", r"\[")):
        read(*lines)


def test_nothing_of_a_wrong_line_is_given_out() -> None:
    broken = {"conversation": "d", "messages": [{"role": "user", "content": "fine"}, {"content": "no role"}]}
    given: list[str | None] = []
    with pytest.raises(FormatError, match=r"line 2: messages\[1\].role"):
        given.extend(
            item.session
            for item in read_items((json.dumps(line).encode() for line in (CHAT, broken)), "file")
        )
    assert "d" not in given
