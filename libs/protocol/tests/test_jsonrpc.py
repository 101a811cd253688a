from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2m_protocol import jsonrpc
from a2m_protocol.credentials import TokenFile
from a2m_protocol.errors import A2MError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_what_is_encoded_decodes_to_the_same(value: Any) -> None:
    data = jsonrpc.encode(value)
    assert b"\n" not in data
    assert jsonrpc.decode(data) == value
    assert jsonrpc.decode(data.decode()) == value


@given(st.binary() | st.text().map(str.encode))
def test_bytes_are_decoded_or_refused_as_unreadable(data: bytes) -> None:
    try:
        json.loads(data.decode(), parse_constant=float)
        readable = not (b"NaN" in data or b"Infinity" in data)
    except ValueError:
        readable = False
    if readable:
        jsonrpc.decode(data)
    else:
        with pytest.raises(A2MError, match="not a JSON value"):
            jsonrpc.decode(data)


@given(st.text(st.characters(categories=["Cs", "L"])))
def test_surrogates_never_fail_and_survive(text: str) -> None:
    assert json.loads(jsonrpc.encode({"text": text})) == json.loads(json.dumps({"text": text}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nul",
        b"NaN",
        b"[Infinity]",
        b'{"a": -Infinity}',
        b"\xff",
        b"\xef\xbb\xbf1",
        "1".encode("utf-16"),
        b"[" * 100_000,
        b"9" * 10_000,
        b"1 2",
        b"{'a': 1}",
        b'"\n"',
    ],
    ids=range(13),
)
def test_what_is_not_json_is_a_parse_error(data: bytes) -> None:
    with pytest.raises(A2MError) as caught:
        jsonrpc.decode(data)
    assert caught.value.code == -32700


def test_of_equal_keys_the_last_wins() -> None:
    assert jsonrpc.decode(b'{"a": 1, "a": 2}') == {"a": 2}


def test_integers_beyond_64_bits_are_exact() -> None:
    assert jsonrpc.decode(jsonrpc.encode(2**200 + 1)) == 2**200 + 1


def test_numbers_that_json_does_not_have_are_not_encoded() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        jsonrpc.encode([float("nan")])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, True),
        ("a", True),
        (None, True),
        (1.5, True),
        (True, False),
        ([], False),
        ({}, False),
        (float("inf"), False),
    ],
)
def test_an_id_is_a_string_a_finite_number_or_null(value: object, expected: bool) -> None:
    assert jsonrpc.is_id(value) is expected
    assert jsonrpc.id_of({"id": value}) == (value if expected else None)


def test_what_is_no_object_has_no_id() -> None:
    assert jsonrpc.id_of([{"id": 1}]) is None


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("  abc\n")
    tokens = TokenFile(path)
    assert tokens.token == b"abc"
    path.write_text("abc-def\n")
    assert tokens.token == b"abc-def"
    path.write_text("")
    assert tokens.token == b"abc-def"
    path.unlink()
    assert tokens.token == b"abc-def"
    assert "abc" not in repr(tokens)


@pytest.mark.parametrize("text", ["", "\n", "two words", "ключ", "a\nb"])
def test_a_token_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(ValueError, match="holds no bearer token"):
        TokenFile(path)
