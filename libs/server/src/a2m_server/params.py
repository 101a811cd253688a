"""Parameters of a call, read one by one into typed values; every refusal names what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import TypeAdapter, ValidationError

from a2m_protocol.errors import invalid_params
from a2m_protocol.types import (
    MAX_CONTENT,
    MAX_RECALL,
    MAX_RECORDS,
    STATUSES,
    Status,
    Vector,
    check_text,
    explain,
)

DEFAULT_RECALL = 8
MAX_AMOUNT = 1e15
MAX_LIMIT = 2**31 - 1
MAX_QUERY = 16_384
"""How many characters of what is searched for count."""

_vectors: TypeAdapter[list[float]] = TypeAdapter(Vector)


@dataclass(frozen=True, slots=True)
class Limits:
    """What `describe.limits` announces; all servers of a federation should share them.

    More records a call and a greater recall limit are refused with -32602, longer content (in characters)
    with -32006.
    """

    max_records_per_call: int = MAX_RECORDS
    max_recall_limit: int = MAX_RECALL
    max_content_length: int = MAX_CONTENT


class Params:
    """The parameters of one call by name. A parameter that is null counts as left out.

    Each reader raises `A2MError` (-32602) on a value of another type than it is named after.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def raw(self, name: str) -> object:
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise invalid_params(f"{name}: expected a string, not {kind_of(value)}")
        return checked(name, value)

    def name(self, name: str) -> str | None:
        """A string that is not empty."""
        value = self.text(name)
        if value == "":
            raise invalid_params(f"{name}: expected a string that is not empty")
        return value

    def words(self, name: str) -> str | None:
        """What to search for: the first `MAX_QUERY` characters of a string, or None where it is blank.

        Every tier takes a query apart, while turns wait: one as long as a body may be would silence them all.
        """
        text = self.text(name)
        return (text.strip()[:MAX_QUERY] or None) if text is not None else None

    def required(self, name: str) -> str:
        value = self.name(name)
        if value is None:
            raise invalid_params(f"{name}: is missing; expected a string that is not empty")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid_params(f"{name}: expected true or false, not {kind_of(value)}")
        return value

    def integer(self, name: str) -> int | None:
        """An integer that is not negative; 8.0 is one, true is not."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid_params(f"{name}: expected an integer, not {kind_of(value)}")
        if value < 0:
            raise invalid_params(f"{name}: expected an integer that is not negative, not {value}")
        return value

    def limit(self, name: str = "limit") -> int | None:
        """How many at most, or None for no limit, which 0 means too."""
        value = self.integer(name)
        return min(value, MAX_LIMIT) if value else None

    def number(self, name: str) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid_params(f"{name}: expected a number, not {kind_of(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise invalid_params(f"{name}: expected a finite number")
        return number

    def amount(self, name: str, default: float) -> float:
        """A number to be added to a salience."""
        value = self.number(name)
        if value is None:
            return default
        if abs(value) > MAX_AMOUNT:
            raise invalid_params(f"{name}: expected a number between {-MAX_AMOUNT:g} and {MAX_AMOUNT:g}")
        return value

    def ids(self, name: str = "ids") -> list[str] | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise invalid_params(f"{name}: expected an array of strings, not {kind_of(value)}")
        items = cast("list[object]", value)
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise invalid_params(f"{name}[{index}]: expected a string, not {kind_of(item)}")
        strings = cast("list[str]", items)
        checked(name, "\n".join(strings))
        return strings

    def owners(self, name: str) -> frozenset[str | None] | None:
        """A set of owners, in which null stands for pooled records."""
        value = self._values.get(name)
        if value is None:
            return None
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        if not isinstance(value, list) or not all(item is None or isinstance(item, str) for item in items):
            raise invalid_params(f"{name}: expected an array of strings, or of null for pooled records")
        owners = cast("list[str | None]", items)
        checked(name, "\n".join(owner for owner in owners if owner is not None))
        return frozenset(owners)

    def statuses(self, name: str = "status") -> tuple[Status, ...] | None:
        """One status or several; None where it is not given."""
        value = self._values.get(name)
        if value is None:
            return None
        given = cast("list[object]", value) if isinstance(value, list) else [value]
        found: list[Status] = [status for status in STATUSES if status in given]
        if not given or any(one not in STATUSES for one in given):
            raise invalid_params(f"{name}: expected {', '.join(STATUSES)}, or an array of these")
        return tuple(found)

    def required_ids(self, name: str = "ids") -> list[str]:
        ids = self.ids(name)
        if ids is None:
            raise invalid_params(f"{name}: is missing; expected an array of strings")
        return ids

    def vector(self, name: str) -> list[float] | None:
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return _vectors.validate_python(value, strict=True)
        except ValidationError as error:
            raise invalid_params(explain(error, name)) from error

    def objects(self, name: str) -> list[Mapping[str, object]] | None:
        """An array of objects."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise invalid_params(f"{name}: expected an array of objects, not {kind_of(value)}")
        items = cast("list[object]", value)
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                raise invalid_params(f"{name}[{index}]: expected an object, not {kind_of(item)}")
        return cast("list[Mapping[str, object]]", items)


def checked(name: str, text: str) -> str:
    """`text`, unless it is what no tier could hold."""
    try:
        return check_text(text)
    except ValueError as error:
        raise invalid_params(f"{name}: {error}") from None


def kind_of(value: object) -> str:
    """The JSON type of a value, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
