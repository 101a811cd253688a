"""Values from the server, which stay untyped until a check has looked at them."""

from typing import Any, TypeGuard

# A black box trusts nothing that it is sent, so a value of JSON may be anything.
Json = Any


def is_object(value: Json) -> TypeGuard[dict[str, Json]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: Json) -> TypeGuard[list[Json]]:
    """Whether a JSON value is a list."""
    return isinstance(value, list)


def part(value: Json, name: str, default: Json = None) -> Json:
    """A member of an object, or `default` where there is none, or no object at all."""
    return value.get(name, default) if is_object(value) else default
