"""The one error of A2M, its codes, and a constructor for each."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]


class Code(IntEnum):
    """Error codes of JSON-RPC 2.0 and of A2M 0.1 (PROTOCOL section 4)."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603
    UNKNOWN_RECORD = -32001
    UNKNOWN_TIER = -32002
    NOT_SUPPORTED = -32003
    READ_ONLY = -32004
    SCOPE_DENIED = -32005
    QUOTA_EXCEEDED = -32006
    PROTOCOL_NOT_SUPPORTED = -32007
    EMBEDDING_MISMATCH = -32008


class A2MError(Exception):
    """A failure with its wire `code`, a `message` for people and optional JSON `data`."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def wire(self) -> JsonObject:
        """The JSON-RPC error object: `{code, message, data?}`."""
        error: JsonObject = {"code": int(self.code), "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later, as `data.retryable` says."""
        return self.data is not None and self.data.get("retryable") is True


def invalid_params(message: str, data: JsonObject | None = None) -> A2MError:
    return A2MError(Code.INVALID_PARAMS, message, data)


def not_supported(message: str) -> A2MError:
    return A2MError(Code.NOT_SUPPORTED, message)


def unknown_tier(name: str, tiers: list[str]) -> A2MError:
    known = ", ".join(tiers) or "none"
    return A2MError(Code.UNKNOWN_TIER, f"unknown tier {name!r}: this server's tiers are {known}")


def scope_denied(message: str) -> A2MError:
    return A2MError(Code.SCOPE_DENIED, message)


def quota_exceeded(message: str) -> A2MError:
    return A2MError(Code.QUOTA_EXCEEDED, message)


def embedding_mismatch(expected: int, got: int) -> A2MError:
    return A2MError(
        Code.EMBEDDING_MISMATCH,
        f"this store holds vectors of {expected} numbers and was given {got}: embed with the same model",
        {"expected": expected, "got": got},
    )


def unavailable(what: str, why: str) -> A2MError:
    """A dependency is down: -32603 with `data.retryable: true`."""
    return A2MError(Code.INTERNAL, f"{what} is not available: {why}; try again", {"retryable": True})


def after_forgetting(error: A2MError, ids: Sequence[str], uncertain: Sequence[str] = ()) -> A2MError:
    """The failure of a forget, which says in `data.forgotten` what it has removed all the same.

    `data.uncertain` has those of which it was about to remove what is in each tier.
    """
    told: JsonObject = {"forgotten": [*ids], "uncertain": [*uncertain]}
    return A2MError(error.code, error.message, {**(error.data or {}), **told})


def already_forgotten(error: A2MError) -> list[str]:
    """What a forget that failed has removed, as `after_forgetting` says it."""
    told = (error.data or {}).get("forgotten")
    return [i for i in told if isinstance(i, str)] if isinstance(told, list) else []


class TransportError(A2MError):
    """The call got no usable answer: the connection failed, time ran out, or the answer was garbage.

    `maybe_received` says whether the server may have received the request, and so may have carried it out;
    when it is false the call certainly had no effect. `retryable` is false for what a retry cannot mend.
    """

    def __init__(self, message: str, *, maybe_received: bool, retryable: bool = True) -> None:
        super().__init__(Code.INTERNAL, message, {"retryable": retryable, "maybe_received": maybe_received})
        self.maybe_received = maybe_received
