"""The connection to the Redis or Valkey that several routers share, and where the driver's errors end."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from redis.asyncio import Redis
from redis.exceptions import RedisError

from a2m_protocol.errors import unavailable

PREFIX = "{a2m-router}:"
"""Before every key of ours; what is in braces keeps them in one slot of a Cluster."""

_SECONDS = 5.0


def connect(url: str) -> Redis:
    """A client of the server at `url` (`redis://`, `rediss://` or `unix://`); nothing is asked of it yet.

    Raises `ValueError` for what is no such URL, without repeating it: it may hold a password.
    """
    try:
        redis = Redis.from_url(  # pyright: ignore[reportUnknownMemberType] its stubs leave the options open
            url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS, health_check_interval=30
        )
        redis.connection_pool.make_connection()  # which reads the options, and connects to nothing
    except (ValueError, TypeError):
        raise ValueError(
            "the coordination URL of the router is not usable: expected redis://HOST:PORT/DB, rediss://... "
            "or unix:///PATH, and no options but the driver's"
        ) from None
    return redis


@contextmanager
def translated() -> Generator[None]:
    """Turn the driver's errors into a retryable `A2MError`, and keep a cancellation one.

    The driver may take a wait that was cancelled for a lost connection, and ask again.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except (RedisError, OSError) as error:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise unavailable(
            "the database that the routers share", str(error) or type(error).__name__
        ) from error
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
