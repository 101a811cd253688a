"""The port's `Filter` as a clause of the engine; what it cannot express is refused, never ignored."""

from __future__ import annotations

from a2m_protocol.clock import parse_ms
from a2m_protocol.errors import A2MError, invalid_params
from a2m_protocol.where import NUMBERS, TIMES, Condition, Op, Scalar
from a2m_semantic import tokens
from a2m_semantic.engine import (
    DENSE,
    NOTHING,
    All,
    AnyOf,
    Between,
    Clause,
    HasVector,
    Not,
    Points,
    Prefix,
    Some,
    Within,
    point_id,
)
from a2m_semantic.points import (
    ARRIVED,
    BLANK,
    FILTERED,
    LIVE,
    NUMBER_FIELDS,
    NUMBERS_ARRAY,
    origin_token,
    owner_token,
)
from a2m_server.values import Filter

RANGES = frozenset({Op.GT, Op.GTE, Op.LT, Op.LTE})


def translate(selected: Filter, tier: str) -> Clause:
    """The clause that holds exactly for the live records that `selected` matches.

    Raises -32602 naming `tier` for a condition that the engine cannot honour.
    """
    clauses: list[Clause] = [AnyOf("state", LIVE if selected.statuses is None else selected.statuses)]
    if selected.scope.readable is not None:
        clauses.append(AnyOf("owner", tuple(sorted(map(owner_token, selected.scope.readable)))))
    if selected.ids is not None:
        clauses.append(Points(tuple(point_id("record", name) for name in dict.fromkeys(selected.ids))))
    if selected.arrived:
        clauses.append(AnyOf("tokens", (ARRIVED,)))
    if selected.without is not None:
        clauses += [Not(AnyOf("tokens", (BLANK,))), _without(selected.without)]
    if selected.key_prefix is not None:
        clauses.append(AnyOf("paths", (selected.key_prefix,)))
    if selected.words is not None:
        clauses += [AnyOf("words", (word,)) for word in dict.fromkeys(selected.words)]
        if not selected.words:
            clauses.append(NOTHING)
    clauses += [condition_clause(condition, tier) for condition in selected.where.conditions]
    return All(tuple(clauses))


def _without(model: str) -> Clause:
    """No vector of a model, nor a caller's own, whose origin is no model; of no model at all for its name."""
    none = Not(HasVector(DENSE))
    if not model:
        return none
    return Some((none, Not(AnyOf("origin", (origin_token(None), origin_token(model))))))


def key_clause(key: str) -> Clause:
    """The records at a key, whoever owns them."""
    return _equals(tokens.field_token("key", metadata=False), (key,))


def condition_clause(condition: Condition, tier: str) -> Clause:
    """One condition of a `where`."""
    if not condition.metadata and condition.field not in FILTERED:
        raise _refused(condition, tier, "this field is not indexed")
    start = tokens.field_token(condition.field, metadata=condition.metadata)
    match condition.op:
        case Op.IN:
            return _equals(start, condition.values)
        case Op.NE:
            return Not(_equals(start, condition.values))
        case Op.EXISTS:
            present = AnyOf("tokens", (tokens.present_token(start),))
            return present if condition.value is True else Not(present)
        case Op.PREFIX:
            token = tokens.prefix_token(start, str(condition.value))
            if token is None:
                raise _refused(condition, tier, f"a prefix has at most {tokens.MAX_VALUE} characters here")
            return Prefix("tokens", token)
        case _:
            return _range(condition, tier)


def _equals(start: str, values: tuple[Scalar, ...]) -> Clause:
    found = [tokens.value_token(start, value) for value in values]
    wanted = AnyOf("tokens", tuple(token for token in found if token is not None))
    if None not in values:
        return wanted
    return Some((Not(AnyOf("tokens", (tokens.present_token(start),))), wanted))


def _range(condition: Condition, tier: str) -> Clause:
    value, field = condition.value, condition.field
    if not condition.metadata and field in TIMES:
        return _between(NUMBER_FIELDS[field], condition.op, float(parse_ms(str(value))))
    if isinstance(value, str):
        return _string(condition, value, tier)
    if value is None or isinstance(value, bool):
        return NOTHING
    if not condition.metadata:
        return _number(NUMBER_FIELDS[field], condition, value, tier) if field in NUMBERS else NOTHING
    named = AnyOf("key", (tokens.number_key(field),))
    return Within(NUMBERS_ARRAY, All((named, _number("high", condition, value, tier))))


def _string(condition: Condition, value: str, tier: str) -> Clause:
    """Strings are compared by their digits: at the first of them that differs."""
    if not condition.metadata:
        raise _refused(condition, tier, "strings have an order in metadata only: use in or prefix")
    if len(value.encode()) > tokens.MAX_ORDERED:
        raise _refused(condition, tier, f"a string to compare with has at most {tokens.MAX_ORDERED} bytes")
    strict = Op.GT if condition.op in (Op.GT, Op.GTE) else Op.LT
    digits = [*zip(tokens.DIGIT_NAMES, tokens.digits(value), strict=True)]
    same = [_same(name, digit) for name, digit in digits]
    apart = [All((*same[:at], _between(name, strict, digit))) for at, (name, digit) in enumerate(digits)]
    equal = () if condition.op is strict else (All(tuple(same)),)
    named = AnyOf("key", (tokens.string_key(condition.field),))
    return Within(NUMBERS_ARRAY, All((named, Some((*apart, *equal)))))


def _number(field: str, condition: Condition, value: int | float, tier: str) -> Clause:
    op = condition.op
    high, low, sign = tokens.triple(value)
    if not condition.metadata:
        return _between(field, _toward(op, low), high)
    if abs(high) < tokens.EXACT:
        return _between(field, op, high)
    if sign:
        raise _refused(condition, tier, "the number has more digits than can be compared here")
    strict = Op.GT if op in (Op.GT, Op.GTE) else Op.LT
    return Some(
        (
            _between(field, strict, high),
            All((_same(field, high), _between("low", strict, low))),
            All((_same(field, high), _same("low", low), _between("sign", op, 0.0))),
        )
    )


def _toward(op: Op, low: float) -> Op:
    """The comparison of a double with a number that lies `low` beyond the double it is nearest to."""
    if low > 0:
        return Op.GT if op in (Op.GT, Op.GTE) else Op.LTE
    if low < 0:
        return Op.GTE if op in (Op.GT, Op.GTE) else Op.LT
    return op


def _same(field: str, value: float) -> Between:
    return Between(field, gte=value, lte=value)


def _between(field: str, op: Op, value: float) -> Between:
    match op:
        case Op.GT:
            return Between(field, gt=value)
        case Op.GTE:
            return Between(field, gte=value)
        case Op.LT:
            return Between(field, lt=value)
        case _:
            return Between(field, lte=value)


def _refused(condition: Condition, tier: str, why: str) -> A2MError:
    return invalid_params(
        f"where.{condition.field}.{condition.op}: the {tier} tier cannot honour this: {why}"
    )
