"""The public keys of an issuer (RFC 7517), from a file or fetched from a URL."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, cast

import httpx
import jwt

from a2m_protocol.files import Watched
from a2m_server.identity import UndecidedError

log = logging.getLogger(__name__)

MOST_BYTES = 262_144
"""Of a key set: that of a large issuer has some kilobytes."""
SECONDS = 5.0
"""For one fetch."""
OLD = 3_600.0
"""Seconds after which fetched keys are looked for again, so that one that was withdrawn goes."""

_Keys = Mapping[str, Mapping[str, object]]


class KeySet(Protocol):
    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key of an id, for an algorithm; a token without an id may stand for the only key.

        None where there is none. Raises `UndecidedError` while the keys are not known.
        """
        ...


class Keys:
    """Keys by their ids, each usable with the algorithms of its type alone."""

    def __init__(self, keys: _Keys) -> None:
        self._keys = keys
        self._made: dict[tuple[str, str], jwt.PyJWK | None] = {}

    def __contains__(self, kid: str) -> bool:
        return kid in self._keys

    def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if kid is None and len(self._keys) == 1:
            kid = next(iter(self._keys))
        if kid is None or kid not in self._keys:
            return None
        if (kid, algorithm) not in self._made:
            self._made[kid, algorithm] = _made(self._keys[kid], algorithm)
        return self._made[kid, algorithm]


class FileKeys:
    """The keys of a file, read again when it changes; raises `ValueError` where it holds none at first."""

    def __init__(self, path: Path) -> None:
        try:
            self._watched = Watched(path, parse)
        except OSError as error:
            raise ValueError(f"cannot read the key set {path}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"the key set {path} is wrong: {error}") from error

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        return self._watched.value.find(kid, algorithm)


class FetchedKeys:
    """The keys behind a URL, fetched when they are first needed and when one is asked for that is not there.

    A key that nobody has costs one fetch in `refresh` seconds at most. A fetch that fails leaves the old keys
    in force.
    """

    def __init__(self, url: str, refresh: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._url = url
        self._refresh = refresh
        self._clock = clock
        self._keys: Keys | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if self._keys is None or (kid is not None and kid not in self._keys):
            await self._fetch()
        elif self._clock() - self._fetched_at > OLD:
            self._begin()
        if self._keys is None:
            raise UndecidedError("the issuer's keys cannot be had at present")
        return self._keys.find(kid, algorithm)

    async def _fetch(self) -> None:
        """Wait for a fetch, the one that is under way or a new one if it is time."""
        fetching = self._begin()
        if fetching is not None:
            await asyncio.shield(fetching)  # who gives up waiting must not take it from the others

    def _begin(self) -> asyncio.Task[None] | None:
        under_way = self._fetching is not None and not self._fetching.done()
        if not under_way and self._clock() - self._tried_at >= self._refresh:
            self._tried_at = self._clock()
            self._fetching = asyncio.create_task(self._look())
        return self._fetching

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(SECONDS), httpx.AsyncClient(trust_env=False) as client:
                self._keys = parse(await _body(client, self._url))
            self._fetched_at = self._clock()
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
            log.warning("the issuer's keys cannot be fetched (%s: %s)", type(error).__name__, error)


def key_set(jwks: str, refresh: float) -> KeySet:
    """The keys that a setting names; raises `ValueError` where a file holds none."""
    return FetchedKeys(jwks, refresh) if "://" in jwks else FileKeys(Path(jwks))


def parse(text: bytes) -> Keys:
    """The keys for signatures in a key set, those of an unknown kind left out; raises `ValueError`."""
    told: object = json.loads(text)
    listed = cast("dict[str, object]", told).get("keys") if isinstance(told, dict) else None
    if not isinstance(listed, list):
        raise ValueError("expected an object with an array `keys`")
    usable: dict[str, Mapping[str, object]] = {}
    for key in cast("list[object]", listed):
        if isinstance(key, dict):
            fields = cast("dict[str, object]", key)
            kid = fields.get("kid", "")
            kind = fields.get("kty")
            if fields.get("use", "sig") != "sig" or not isinstance(kid, str) or not isinstance(kind, str):
                continue
            if kind in TYPES:
                usable[kid] = fields
    if not usable:
        raise ValueError("it holds no public key for signatures")
    return Keys(usable)


TYPES = frozenset({"RSA", "EC", "OKP"})
"""Public keys; a shared secret would let whoever checks tokens make them."""


def _made(fields: Mapping[str, object], algorithm: str) -> jwt.PyJWK | None:
    if fields.get("alg", algorithm) != algorithm:
        return None
    try:
        # PyJWT refuses a key of another type than the algorithm's.
        return jwt.PyJWK.from_dict({**fields}, algorithm=algorithm)
    except jwt.PyJWTError:
        return None


async def _body(client: httpx.AsyncClient, url: str) -> bytes:
    async with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
        if response.status_code != 200:
            raise ValueError(f"HTTP {response.status_code}")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
        return bytes(body)
