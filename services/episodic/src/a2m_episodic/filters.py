"""A `Filter` as SQL: conditions on `records r`, values as parameters.

What `Where.matches` says is the reference; strings compare by code point (the columns' collation is "C").
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TypeAlias

from a2m_episodic.queries import query
from a2m_episodic.terms import word_marks
from a2m_episodic.values import exact, fact, scalar
from a2m_protocol.errors import invalid_params
from a2m_protocol.where import SEVERAL, Condition, Op, Scalar
from a2m_server.values import Filter, Scope

Value: TypeAlias = str | int | float | bool | list[str] | list[int] | None

TEXTS = {
    "id": "r.id",
    "content": "r.content",
    "created_at": "r.created_at",
    "role": "r.role",
    "group": 'r."group"',
    "accessed_at": "r.accessed_at",
    "owner": "r.owner",
    "session": "r.session",
    "key": "r.key",
    "uri": "r.uri",
    "media_type": "r.media_type",
    "status": "r.status",
    "embedding_model": "r.embedding_model",
    "tier": "NULL::text",
}
INTEGERS = {
    "access_count": "r.access_count",
    "revision": "r.revision",
    "seq": "r.seq",
    "moves": "r.moves",
}
FLOATS = {"salience": "r.salience"}

# Up to so many alternatives are looked up in the index one by one; more are compared with each row.
MAX_LOOKUPS = 16
MAX_EXACT = 2**53

_SIGNS = {Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}


@dataclass(slots=True)
class Conditions:
    """A filter in parts, to be joined by AND.

    Searches apply `scope` to their own copy of the owner. `buckets` selects the buckets of a filter that pins
    the session, and is None for one that does not.
    """

    owners: str
    rest: list[str] = field(default_factory=list[str])
    buckets: str | None = None
    values: dict[str, Value] = field(default_factory=dict[str, Value])

    def scope(self, alias: str) -> str:
        return self.owners.replace("@.", f"{alias}.")

    @property
    def all(self) -> str:
        """Every condition, on `records r`."""
        inside = [] if self.buckets is None else [f"r.bucket = ANY(ARRAY({self.buckets}))"]
        return " AND ".join([self.scope("r"), *inside, *self.rest])

    @property
    def within(self) -> str:
        """The conditions that are left once `r.bucket` is one of `buckets`."""
        return " AND ".join(self.rest) or "TRUE"

    @property
    def everything(self) -> bool:
        return self.owners == "TRUE" and not self.rest

    def bind(self, value: Value) -> str:
        name = f"f{len(self.values)}"
        self.values[name] = value
        return f"%({name})s"


def compile_filter(selected: Filter) -> Conditions:
    """The conditions of a filter; `A2MError` (-32602) for a field that cannot be filtered on."""
    found = owned_by(selected.scope)
    if selected.ids is not None:
        found.rest.append(f"r.id = ANY({found.bind(list(selected.ids))}::text[])")
    if selected.statuses is not None:
        found.rest.append(f"r.status = ANY({found.bind(list(selected.statuses))}::text[])")
    if selected.arrived:
        found.rest.append("r.arrival IS NOT NULL")
    if selected.without == "":
        found.rest.append("r.unseen")
    elif selected.without is not None:
        model = found.bind(selected.without)
        found.rest.append(query("filter", "without", model=f"{model}::text"))
    if selected.key_prefix is not None:
        # Beneath `a` is what lies between `a/` and `a0`, for 0 is what follows the slash.
        key, low, high = (found.bind(selected.key_prefix + end) for end in ("", "/", "0"))
        found.rest.append(f"(r.key = {key} OR r.key >= {low} AND r.key < {high})")
    if selected.words is not None:
        marks = found.bind(word_marks(selected.words))
        inside = query("filter", "words", marks=f"{marks}::bigint[]")
        found.rest.append(inside if selected.words else "FALSE")
    sessions = selected.where.only("session")
    if sessions is not None:
        inside = f"{found.scope('b')} AND {_any_text(found, 'b.session', sessions)}"
        found.buckets = query("filter", "buckets", filter=inside)
    found.rest += [_condition(found, condition) for condition in selected.where.conditions]
    return found


def owned_by(scope: Scope) -> Conditions:
    """The conditions of a scope alone."""
    if scope.readable is None:
        return Conditions("TRUE")
    found = Conditions("")
    owners = sorted(owner for owner in scope.readable if owner is not None)
    parts = [f"@.owner = {found.bind(owners[0])}"] if len(owners) == 1 else []
    if len(owners) > 1:
        parts = [f"@.owner = ANY({found.bind(owners)}::text[])"]
    if None in scope.readable:
        parts.append("@.owner IS NULL")
    found.owners = f"({' OR '.join(parts)})" if parts else "FALSE"
    return found


def _condition(found: Conditions, condition: Condition) -> str:
    if condition.metadata:
        return _fact(found, condition)
    if condition.field in TEXTS:
        return _text(found, TEXTS[condition.field], condition)
    if condition.field in INTEGERS:
        return _number(found, INTEGERS[condition.field] + "::numeric", condition)
    if condition.field in FLOATS:
        return _number(found, FLOATS[condition.field], condition, floating=True)
    raise invalid_params(f"where: the episodic tier cannot filter on the field {condition.field!r}")


def _text(found: Conditions, column: str, condition: Condition) -> str:
    value = condition.value if condition.values else None
    match condition.op:
        case Op.IN:
            return _any_text(found, column, condition.values)
        case Op.NE if value is None:
            return f"{column} IS NOT NULL"
        case Op.NE if isinstance(value, str):
            return f"{column} IS DISTINCT FROM {found.bind(value)}"
        case Op.NE:
            return "TRUE"
        case Op.EXISTS:
            return f"{column} IS {'NOT ' if value else ''}NULL"
        case Op.PREFIX:
            return f"starts_with({column}, {found.bind(value)})"
        case op:
            return f"{column} {_SIGNS[op]} {found.bind(value)}" if isinstance(value, str) else "FALSE"


def _any_text(found: Conditions, column: str, values: tuple[Scalar, ...]) -> str:
    texts = [value for value in values if isinstance(value, str)]
    parts: list[str] = []
    if len(texts) == 1:
        parts.append(f"{column} = {found.bind(texts[0])}")
    elif texts:
        parts.append(f"{column} = ANY({found.bind(texts)}::text[])")
    if None in values:
        parts.append(f"{column} IS NULL")
    return f"({' OR '.join(parts)})" if parts else "FALSE"


def _number(found: Conditions, column: str, condition: Condition, *, floating: bool = False) -> str:
    """A condition on a column that is never null; integers are compared as `numeric`."""
    numbers = [v for v in condition.values if isinstance(v, int | float) and not isinstance(v, bool)]
    compare = _floating if floating else _decimal
    equal = " OR ".join(compare(found, column, "=", number) for number in numbers)
    match condition.op:
        case Op.IN:
            return f"({equal})" if equal else "FALSE"
        case Op.NE:
            return f"NOT ({equal})" if equal else "TRUE"
        case Op.EXISTS:
            return "TRUE" if condition.value else "FALSE"
        case Op.PREFIX:
            return "FALSE"
        case op:
            return compare(found, column, _SIGNS[op], numbers[0]) if numbers else "FALSE"


def _decimal(found: Conditions, column: str, sign: str, number: float) -> str:
    return f"{column} {sign} {found.bind(json.dumps(exact(number)))}::numeric"


def _floating(found: Conditions, column: str, sign: str, number: float) -> str:
    """A comparison of doubles with a number that need not be one."""
    try:
        near = float(number)
    except OverflowError:
        beyond = sign in (">", ">=") if number < 0 else sign in ("<", "<=")
        return "TRUE" if beyond else "FALSE"
    if near != number:
        # No double lies between the number and the nearest one.
        if sign == "=":
            return "FALSE"
        sign = {">": (">", ">="), "<": ("<=", "<")}[sign[0]][near > number]
    return f"{column} {sign} {found.bind(repr(near))}::double precision"


def _fact(found: Conditions, condition: Condition) -> str:
    value = condition.value if condition.values else None
    key = f"{found.bind(condition.field)}::text"
    match condition.op:
        case Op.IN:
            return _any_fact(found, condition.field, key, condition.values)
        case Op.NE if value is None:
            return f"r.facts ? {key}"
        case Op.NE:
            return f"NOT r.facts @> {found.bind(fact(condition.field, value))}::jsonb"
        case Op.EXISTS:
            return f"r.facts ? {key}" if value else f"NOT r.facts ? {key}"
        case Op.PREFIX:
            held = f"starts_with(r.facts ->> {key}, {found.bind(value)})"
            return f"(jsonb_typeof(r.facts -> {key}) = 'string' AND {held})"
        case op if isinstance(value, str):
            held = f'(r.facts ->> {key}) COLLATE "C" {_SIGNS[op]} {found.bind(value)}'
            return f"(jsonb_typeof(r.facts -> {key}) = 'string' AND {held})"
        case op:
            held = f"r.facts -> {key} {_SIGNS[op]} {found.bind(scalar(value))}::jsonb"
            return f"(jsonb_typeof(r.facts -> {key}) = 'number' AND {held})"


def _any_fact(found: Conditions, name: str, key: str, values: tuple[Scalar, ...]) -> str:
    wanted = list(dict.fromkeys(scalar(value) for value in values if value is not None))
    parts: list[str] = []
    if len(wanted) > MAX_LOOKUPS and name not in SEVERAL:
        parts.append(f"r.facts -> {key} = ANY({found.bind(wanted)}::text[]::jsonb[])")
    else:
        held = dict.fromkeys(fact(name, value) for value in values if value is not None)
        parts += [f"r.facts @> {found.bind(one)}::jsonb" for one in held]
    if None in values:
        parts.append(f"NOT r.facts ? {key}")
    return f"({' OR '.join(parts)})" if parts else "FALSE"
