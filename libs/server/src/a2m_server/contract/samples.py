"""Records and filters that the tests of every store are made with."""

from __future__ import annotations

import uuid

from a2m_protocol.types import FIELDS as CAPABILITY_FIELDS
from a2m_protocol.types import Draft, Record
from a2m_protocol.where import Where, parse_where
from a2m_server.values import EVERYONE, Filter, Scope

FIELDS = frozenset(name for names in CAPABILITY_FIELDS.values() for name in names)
HOSTILE = [
    "../../etc",
    "a%20b",
    "a\nb",
    "*",
    "_%",
    "a'b\"c",
    "{x}",
    "-rf",
    "naïve",
    "猫",
    "a" * 512,
    "$(x)",
    " ",
]


def name(stem: str = "n") -> str:
    """A name that no other test uses."""
    return f"{stem}-{uuid.uuid4().hex[:12]}"


def draft(content: str = "hello", **fields: object) -> Draft:
    return Draft.model_validate({"id": name("id"), "content": content, **fields})


def where(**conditions: object) -> Where:
    return parse_where(conditions, FIELDS)


def within(session: str, scope: Scope = EVERYONE) -> Filter:
    return Filter(scope, where(session=session))


def moved(record: Record, moves: int | None = None) -> Draft:
    """The draft that transfers a record as it is."""
    fields = record.model_dump(exclude={"etag", "score", "tier"}, exclude_none=True)
    return Draft.model_validate({**fields, "moves": record.moves + 1 if moves is None else moves})
