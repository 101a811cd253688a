"""What is checked of every HTTP request before anything else: how it is framed, Host and Origin."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_FOR_PROBES = ("/healthz", "/readyz")
_FRAMES = {b"content-length", b"transfer-encoding"}


def refuse(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal before JSON-RPC begins: `{"error": message}`."""
    return JSONResponse({"error": message}, status, headers=headers)


class Guard:
    """ASGI middleware against pages in a browser that reach for a server of this machine.

    A request with an `Origin` passes only if that is configured. `Host` must be a loopback name or address or
    configured ("*" allows any), which defeats DNS rebinding; health probes, which use addresses of
    their own, are let through. A request that is chunked and tells a length as well ends where a proxy in
    between may not think it does: it is refused, and the connection ended.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str], hosts: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) if scope["type"] == "http" else None
        await (problem or self._app)(scope, receive, send)

    def _problem(self, scope: Scope) -> Response | None:
        headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        if {name for name, _ in headers} >= _FRAMES:
            why = "Content-Length and Transfer-Encoding together: send one of them"
            return refuse(400, why, {"Connection": "close"})
        for name, value in headers:
            if name == b"origin" and value.strip().lower() not in self._origins:
                return refuse(403, "requests from web pages of this origin are not configured here")
            if name == b"host" and scope["path"] not in _FOR_PROBES and not self._knows(value):
                return refuse(421, "this server does not go by that name: add it to its configured hosts")
        return None

    def _knows(self, value: bytes) -> bool:
        name = _host_of(value.decode("latin-1"))
        if name == "localhost" or name in self._hosts or "*" in self._hosts:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def _host_of(value: str) -> str:
    """The host of `host[:port]`, an IPv6 address without its brackets."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.rpartition(":")[0] if ":" in value else value
