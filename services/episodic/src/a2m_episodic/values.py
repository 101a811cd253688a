"""Values as Postgres compares them: exact numbers, metadata for filters, digests of names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from uuid import UUID

from a2m_protocol.where import SEVERAL


def facts(found: Mapping[str, object]) -> str:
    """What `facts_of` found, as the JSON that filters read.

    Scalars are exact, a nested value is `{}` (it exists, and equals no scalar), and nulls are left out. What
    holds several values stays an array, which holds each of them.
    """
    held = {
        key: value if key in SEVERAL else _fact(value) for key, value in found.items() if value is not None
    }
    return json.dumps(held, ensure_ascii=False, separators=(",", ":"))


def fact(key: str, value: object) -> str:
    """The JSON object of one fact, to look for in `facts`."""
    return facts({key: [value] if key in SEVERAL else value})


def scalar(value: object) -> str:
    """One value as JSON, as it stands in `facts`."""
    return json.dumps(_fact(value), ensure_ascii=False)


def exact(value: float) -> int | float:
    """A number whose shortest decimal form is its exact value wherever it is compared with an integer.

    1e23 as a double is 99999999999999991611392, which Python compares by and a decimal reading would not.
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def digest(*names: str | None) -> UUID:
    """A fixed-size stand-in for a tuple of names, for unique indexes."""
    text = json.dumps(names, ensure_ascii=False)
    return UUID(bytes=hashlib.blake2b(text.encode(), digest_size=16).digest())


def lock_number(kind: str, name: str) -> int:
    """The number of the advisory lock on a name."""
    hashed = hashlib.blake2b(f"{kind}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(hashed, "big", signed=True)


def _fact(value: object) -> object:
    if isinstance(value, list | dict):
        return {}
    if isinstance(value, float):
        return exact(value)
    return value
