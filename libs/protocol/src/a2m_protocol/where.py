"""The `where` filter: parsed once, then matched in Python or translated by a store."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, cast

from a2m_protocol.clock import format_ms, parse_ms
from a2m_protocol.errors import invalid_params
from a2m_protocol.types import PROVENANCE, Provenance, check_text, facts_of

Scalar: TypeAlias = str | int | float | bool | None

TIMES = frozenset({"created_at", "accessed_at"})
NUMBERS = frozenset({"salience", "access_count", "revision"})
OPAQUE = frozenset({"metadata", "embedding", "score", "provenance"})
SOURCE = "provenance.source"
AT = "provenance.at"
SOURCES = "provenance.derived_from"
ORIGINS = "provenance.origins"
ANCESTORS = "provenance.ancestors"
SEVERAL = frozenset({SOURCES, ORIGINS, ANCESTORS})
"""The fields that hold several values: they equal each of them."""
MAX_CONDITIONS = 64
MAX_VALUES = 1_000


class Op(StrEnum):
    """What a condition asks of a value; the first is the protocol's own, the rest are operator objects."""

    IN = "in"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    EXISTS = "exists"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Condition:
    """One test: `field` of the record, or of what `facts_of` finds in it when `metadata` is true.

    `values` holds the alternatives of `in`, and exactly one value for every other operator. Null matches
    absent; strings compare with strings and numbers with numbers, and true is not 1. A range or prefix never
    matches a value of another type. `ne` also matches absent.
    """

    field: str
    metadata: bool
    op: Op
    values: tuple[Scalar, ...]

    @property
    def value(self) -> Scalar:
        return self.values[0]


@dataclass(frozen=True, slots=True)
class Where:
    """A conjunction of conditions; none at all matches everything."""

    conditions: tuple[Condition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.conditions)

    def matches(self, record: Mapping[str, object]) -> bool:
        """Whether a record, as a mapping of its fields with `metadata` inside, meets every condition."""
        facts: Mapping[str, object] = {}
        if any(condition.metadata for condition in self.conditions):
            metadata = cast("Mapping[str, object] | None", record.get("metadata"))
            provenance = cast("Provenance | Mapping[str, object] | None", record.get("provenance"))
            facts = facts_of(metadata, provenance)
        return all(_holds(c, (facts if c.metadata else record).get(c.field)) for c in self.conditions)

    def only(self, field: str) -> tuple[Scalar, ...] | None:
        """The values to which a record field is pinned by equality, or None when it is free."""
        for condition in self.conditions:
            if condition.field == field and not condition.metadata and condition.op is Op.IN:
                return condition.values
        return None

    def without(self, field: str) -> Where:
        """The same filter with the equalities on a record field taken out."""
        return Where(tuple(c for c in self.conditions if c.metadata or c.field != field or c.op is not Op.IN))


def parse_where(value: object, fields: Collection[str]) -> Where:
    """A filter from JSON: an object of field to scalar, list of scalars, or operator object.

    `fields` are the record fields that the server declares; every other name is a metadata key, but for the
    parts of the provenance (`provenance.source` and so on). Raises `A2MError` (-32602) that says which
    condition is wrong and why.
    """
    if not isinstance(value, dict):
        raise invalid_params('where: expected an object such as {"role": "user"}')
    conditions: list[Condition] = []
    for field, wanted in cast("dict[str, object]", value).items():
        if field in OPAQUE:
            hint = f": name one of {', '.join(PROVENANCE)}" if field == "provenance" else ""
            raise invalid_params(f"where: {field} is not a field that can be filtered on{hint}")
        _text(field, field)
        metadata = field not in fields
        if isinstance(wanted, dict):
            operators = cast("dict[str, object]", wanted)
            if not operators:
                raise invalid_params(f"where.{field}: an operator object needs an operator: {_OPERATORS}")
            conditions += [_operator(field, metadata, op, operand) for op, operand in operators.items()]
        else:
            alternatives = cast("list[object]", wanted) if isinstance(wanted, list) else [wanted]
            conditions.append(_any_of(field, metadata, alternatives))
    if len(conditions) > MAX_CONDITIONS:
        raise invalid_params(f"where: {len(conditions)} conditions, and at most {MAX_CONDITIONS} are allowed")
    return Where(tuple(conditions))


def same(a: object, b: Scalar) -> bool:
    """JSON equality of a held value and a scalar: 1 is 1.0, true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    return type(a) is type(b) and a == b


_OPERATORS = " ".join(Op)
_RANGES: Mapping[Op, tuple[int, ...]] = {Op.GT: (1,), Op.GTE: (0, 1), Op.LT: (-1,), Op.LTE: (-1, 0)}


def _holds(condition: Condition, held: object) -> bool:
    wanted = condition.value if condition.values else None
    match condition.op:
        case Op.IN:
            return any(_equal(condition.field, held, value) for value in condition.values)
        case Op.NE:
            return not _equal(condition.field, held, wanted)
        case Op.EXISTS:
            return (held is not None) is wanted
        case Op.PREFIX:
            return isinstance(held, str) and isinstance(wanted, str) and held.startswith(wanted)
        case op:
            return _compare(held, wanted) in _RANGES[op]


def _equal(field: str, held: object, wanted: Scalar) -> bool:
    if field in SEVERAL and isinstance(held, list):
        return wanted in cast("list[object]", held)
    return same(held, wanted)


def _compare(held: object, wanted: Scalar) -> int | None:
    """-1, 0 or 1, or None for values that have no order between them."""
    if isinstance(held, bool) or isinstance(wanted, bool):
        return None
    if isinstance(held, str) and isinstance(wanted, str):
        return (held > wanted) - (held < wanted)
    if isinstance(held, int | float) and isinstance(wanted, int | float):
        return (held > wanted) - (held < wanted)
    return None


def _any_of(field: str, metadata: bool, values: list[object]) -> Condition:
    if len(values) > MAX_VALUES:
        raise invalid_params(
            f"where.{field}: {len(values)} alternatives, and at most {MAX_VALUES} are allowed"
        )
    return Condition(field, metadata, Op.IN, tuple(_scalar(field, metadata, v) for v in values))


def _operator(field: str, metadata: bool, name: str, operand: object) -> Condition:
    try:
        op = Op(name)
    except ValueError:
        raise invalid_params(
            f"where.{field}: unknown operator {name[:40]!r}; known are {_OPERATORS}"
        ) from None
    if op is Op.IN:
        if not isinstance(operand, list):
            raise invalid_params(f"where.{field}.in: expected an array")
        return _any_of(field, metadata, cast("list[object]", operand))
    value = _scalar(field, metadata, operand)
    if field in SEVERAL and op not in (Op.NE, Op.EXISTS):
        raise invalid_params(f"where.{field}.{op}: it holds several values: use in, ne or exists")
    if op is Op.EXISTS and not isinstance(value, bool):
        raise invalid_params(f"where.{field}.exists: expected true or false")
    if op is Op.PREFIX and not isinstance(value, str):
        raise invalid_params(f"where.{field}.prefix: expected a string")
    if op in _RANGES:
        if value is None or isinstance(value, bool):
            raise invalid_params(f"where.{field}.{op}: expected a number or a string")
        if _is_time(field, metadata):
            value = _time(field, value)
        if not metadata and field in NUMBERS and isinstance(value, str):
            raise invalid_params(f"where.{field}.{op}: expected a number")
    return Condition(field, metadata, op, (value,))


def _scalar(field: str, metadata: bool, value: object) -> Scalar:
    if isinstance(value, str):
        _text(field, value)
        if _is_time(field, metadata):
            try:
                return format_ms(parse_ms(value))
            except ValueError:
                return value
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise invalid_params(f"where.{field}: a number must be finite")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise invalid_params(f"where.{field}: expected a string, a number, true, false or null")


def _is_time(field: str, metadata: bool) -> bool:
    return field == AT if metadata else field in TIMES


def _time(field: str, value: Scalar) -> str:
    try:
        return format_ms(parse_ms(value if isinstance(value, str) else repr(value)))
    except ValueError as error:
        raise invalid_params(f"where.{field}: {error}") from None


def _text(field: str, text: str) -> None:
    try:
        check_text(text)
    except ValueError as error:
        raise invalid_params(f"where.{field.encode(errors='replace').decode()}: {error}") from None
