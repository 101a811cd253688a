"""What comes back from a server, checked: nothing of it is trusted to have the right shape."""

from __future__ import annotations

import httpx

from a2m_protocol import jsonrpc
from a2m_protocol.errors import A2MError, JsonObject, TransportError


def envelope(data: bytes, number: object, who: str) -> JsonObject:
    """The response to request `number` in `data`, checked; raises `TransportError` that names `who`."""
    try:
        message = jsonrpc.decode(data)
    except A2MError as error:
        raise TransportError(f"{who}: the answer is {error.message}", maybe_received=True) from error
    return checked(message, number, who)


def checked(message: object, number: object, who: str) -> JsonObject:
    """`message` if it is a response to request `number`: a result object or an error of the right shape."""
    if isinstance(message, dict):
        response: JsonObject = message  # pyright: ignore[reportUnknownVariableType] JSON by construction
        got = response.get("id")
        error = response.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            known = (
                isinstance(code, int) and not isinstance(code, bool) and isinstance(error.get("message"), str)
            )
            # An error that came before the id could be read has none.
            if known and (got is None or _same_id(got, number)):
                return response
        elif isinstance(response.get("result"), dict) and _same_id(got, number):
            return response
    raise TransportError(f"{who}: the answer is no JSON-RPC response to the request", maybe_received=True)


def _same_id(got: object, number: object) -> bool:
    return type(got) is type(number) and got == number


def http_error(answer: httpx.Response, who: str) -> A2MError:
    """What an HTTP status other than success means: the error in its body, or a `TransportError`."""
    status = answer.status_code
    try:
        body = jsonrpc.decode(answer.content)
    except A2MError:
        body = None
    detail = body.get("error") if isinstance(body, dict) else None
    if isinstance(detail, dict) and isinstance(detail.get("code"), int):
        return error_of(detail)
    text = f": {detail[:300]}" if isinstance(detail, str) else ""
    return TransportError(
        f"{who}: HTTP {status} {answer.reason_phrase}{text}",
        maybe_received=status >= 500,
        retryable=status in (408, 429) or status >= 500,
    )


def error_of(error: JsonObject) -> A2MError:
    """The exception of a JSON-RPC error object that has been checked."""
    code, given = error["code"], error.get("data")
    data: JsonObject | None = given if given is None or isinstance(given, dict) else {"detail": given}
    return A2MError(code if isinstance(code, int) else 0, str(error.get("message", "")), data)
