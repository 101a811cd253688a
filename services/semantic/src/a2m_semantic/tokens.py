"""Keyword tokens, triples and digits: how exact JSON values become something the engine can index."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import cast

from a2m_protocol.where import SEVERAL

MAX_VALUE = 512
MAX_FIELD = 128
EXACT = 2**53
MAX_ORDERED = 36
"""Bytes of a string by which it is ordered."""

_DIGIT_BYTES = 6
_DIGITS = MAX_ORDERED // _DIGIT_BYTES

DIGIT_NAMES = ("high", *(f"digit{n}" for n in range(1, _DIGITS)), "longer")

Triple = tuple[float, float, int]


def field_token(field: str, *, metadata: bool) -> str:
    """The beginning of every token of a field; it ends itself, so that no field is a prefix of another."""
    name = json.dumps(field, ensure_ascii=False)
    if len(name) > MAX_FIELD:
        name = f"#{_digest(name)}"
    return ("m" if metadata else "r") + name


def present_token(start: str) -> str:
    """The token of a field that holds anything but null."""
    return start + "?"


def value_token(start: str, value: object) -> str | None:
    """The token of a field that holds this scalar, or None for null, arrays and objects.

    Two scalars have one token exactly when they are equal in JSON: 1 is 1.0, true is not 1.
    """
    if isinstance(value, bool):
        return f"{start}b{value:d}"
    if isinstance(value, str):
        return f"{start}s{_shorten(value)}"
    if isinstance(value, int | float):
        return f"{start}n{_shorten(_canonical(value))}"
    return None


def prefix_token(start: str, prefix: str) -> str | None:
    """What the token of a string with this prefix starts with; None when the prefix is too long to tell."""
    return f"{start}s{prefix}" if len(prefix) <= MAX_VALUE else None


def tokens(fields: Mapping[str, object], *, metadata: bool) -> list[str]:
    """Every token of a flat object."""
    found: list[str] = []
    for field, value in fields.items():
        if value is None:
            continue
        start = field_token(field, metadata=metadata)
        found.append(present_token(start))
        values = cast("list[object]", value) if metadata and field in SEVERAL else [value]
        each = (value_token(start, one) for one in values)
        found += [token for token in each if token is not None]
    return found


def number_key(field: str) -> str:
    """A metadata key as it stands beside its number."""
    return field_token(field, metadata=True)


def numbers(fields: Mapping[str, object]) -> list[dict[str, str | float]]:
    """Every number of a flat object, as a triple beside its key, without parts that are surely zero."""
    found: list[dict[str, str | float]] = []
    for field, value in fields.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            high, low, sign = triple(value)
            number: dict[str, str | float] = {"key": number_key(field), "high": high}
            found.append(number if abs(high) < EXACT else number | {"low": low, "sign": sign})
    return found


def string_key(field: str) -> str:
    """A metadata key as it stands beside the digits of its string."""
    return field_token(field, metadata=True) + "s"


def strings(fields: Mapping[str, object]) -> list[dict[str, str | float]]:
    """The `digits` of every string of a flat object, each beside its key under `DIGIT_NAMES`."""
    return [
        {"key": string_key(field), **dict(zip(DIGIT_NAMES, digits(value), strict=True))}
        for field, value in fields.items()
        if isinstance(value, str)
    ]


def digits(text: str) -> list[float]:
    """Numbers that doubles hold, ordered like the strings that they are of: 36 bytes, and if more follow.

    UTF-8 has the order of code points, and a byte counts as one more than it is, so that an end comes first.
    """
    held = text.encode()
    found: list[float] = []
    for start in range(0, MAX_ORDERED, _DIGIT_BYTES):
        part = held[start : start + _DIGIT_BYTES]
        number = 0
        for at in range(_DIGIT_BYTES):
            number = number * 257 + (part[at] + 1 if at < len(part) else 0)
        found.append(float(number))
    return [*found, float(len(held) > MAX_ORDERED)]


def triple(number: int | float) -> Triple:
    """A number as (nearest double, double of what is left, sign of what is left then): ordered like numbers.

    Integers of JSON have any length, and the engine compares doubles.
    """
    if isinstance(number, float):
        return (number, 0.0, 0)
    high = _double(number)
    rest = number - int(high)
    low = _double(rest)
    rest -= int(low)
    return (high, low, (rest > 0) - (rest < 0))


def _double(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return sys.float_info.max if number > 0 else -sys.float_info.max


def _canonical(number: int | float) -> str:
    if isinstance(number, float) and not number.is_integer():
        return repr(number)
    return f"{int(number):x}"


def _shorten(value: str) -> str:
    # The start is kept for prefixes; whatever is cut is longer than any value that was not.
    return value if len(value) <= MAX_VALUE else value[:MAX_VALUE] + _digest(value)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
