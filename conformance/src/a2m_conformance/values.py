"""Comparing and inspecting JSON values."""

import itertools
import math
import re
from collections.abc import Iterable

from a2m_conformance.outcome import CheckFailure, expect
from a2m_conformance.shapes import Json, is_list, is_object

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def same(left: Json, right: Json) -> bool:
    """Whether two JSON values are one: true is not 1, the order of keys is nothing, -0.0 is not 0.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if is_object(left) and is_object(right):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if is_list(left) and is_list(right):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def is_timestamp(value: Json) -> bool:
    """Whether it is UTC RFC 3339 with a Z and exactly milliseconds."""
    return isinstance(value, str) and _TIMESTAMP.fullmatch(value) is not None


def is_text(value: Json) -> bool:
    """Whether it is a text that is not empty."""
    return isinstance(value, str) and value != ""


def is_count(value: Json) -> bool:
    """Whether it is an integer of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: Json) -> bool:
    """Whether it is a number, which true is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_ascending(values: Iterable[Json]) -> bool:
    """Whether no value is below the one before it."""
    return all(first <= second for first, second in itertools.pairwise(values))


def fields(record: Json, *names: str) -> dict[str, Json]:
    """The named fields of a record, as far as it has them."""
    return {name: record[name] for name in names if name in record}


def ids(records: Iterable[Json]) -> list[Json]:
    """The ids of records, in order."""
    return [record.get("id") for record in records]


def contents(records: Iterable[Json]) -> list[Json]:
    """The contents of records, in order."""
    return [record.get("content") for record in records]


def only(records: list[Json], what: str) -> Json:
    """The single record of a list, or a failure that says how many there were."""
    expect(len(records) == 1, f"{what}: one record was expected, there are {len(records)}")
    return records[0]


def equal(got: Json, wanted: Json, what: str) -> None:
    """Fail unless both are the same JSON value."""
    if not same(got, wanted):
        raise CheckFailure(f"{what}: expected {_short(wanted)}, got {_short(got)}")


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "…"
