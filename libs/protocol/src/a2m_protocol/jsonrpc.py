"""JSON-RPC 2.0: bytes to JSON and back, and the shapes of its messages."""

from __future__ import annotations

import json
import math
from typing import NoReturn, cast

from a2m_protocol.errors import A2MError, Code, Json, JsonObject


def decode(data: bytes | bytearray | str) -> Json:
    """Parse one JSON value (RFC 8259, UTF-8 without a byte order mark); of equal keys the last wins.

    Raises `A2MError` (-32700) on anything else: NaN and Infinity, nesting beyond the parser's depth and
    integers beyond its length included. Lone surrogates in strings pass; those who use the text refuse them.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        return _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise _unreadable(f"invalid UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise _unreadable(f"{error.msg} at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise _unreadable("it is nested too deep") from error
    except ValueError as error:
        raise _unreadable("it holds a number that is out of range") from error


def encode(value: object) -> bytes:
    """A JSON value as compact UTF-8 on one line; lone surrogates are written as escapes.

    Raises `ValueError` on NaN and infinities, which JSON does not have.
    """
    try:
        return _plain.encode(value).encode()
    except UnicodeEncodeError:
        return _escaping.encode(value).encode()


def request(number: int | str, method: str, params: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def notification(method: str, params: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def success(number: Json, result: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def failure(number: Json, error: A2MError) -> JsonObject:
    return {"jsonrpc": "2.0", "id": number, "error": error.wire()}


def is_id(value: object) -> bool:
    """Whether a value may be the id of a request: a string, a finite number or null."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int | str) and not isinstance(value, bool))


def id_of(message: object) -> Json:
    """The id that an answer to `message` carries: its own where that is valid, else null."""
    number = cast("JsonObject", message).get("id") if isinstance(message, dict) else None
    return number if is_id(number) else None


def _unreadable(why: str) -> A2MError:
    return A2MError(Code.PARSE, f"not a JSON value: {why}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)
_plain = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_escaping = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
