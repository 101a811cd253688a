"""The connection to Redis or Valkey: scripts by digest, and one boundary where the driver's errors end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError, ResponseError

from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_server import tracing
from a2m_working.scripts import load_scripts
from a2m_working.settings import WorkingSettings

Argument: TypeAlias = str | bytes | int
T = TypeVar("T")

# What a server answers while it cannot do what it will do later.
_PASSING = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS")
WHAT = "the working tier's database"


class Database:
    """One server, or a Cluster. Every method raises `A2MError` alone.

    A call that was sent is not sent again unless it only reads: the caller decides whether to retry. A lost
    connection is made again by the next call. `ValueError` is raised when the password file holds none.
    """

    def __init__(self, settings: WorkingSettings) -> None:
        self._settings = settings
        self._password = _password(settings)
        self._scripts = load_scripts()
        self._client: Redis | RedisCluster | None = None
        self._parallel = asyncio.Semaphore(settings.max_redis_connections)
        self.is_cluster = False

    async def open(self) -> None:
        """Connect, and learn whether the server is part of a Cluster."""
        try:
            async with _translated():
                self._client = self._server()
                self.is_cluster = bool((await self._connected.info("cluster")).get("cluster_enabled"))
                if self.is_cluster:
                    await self._connected.aclose()
                    self._client = self._cluster()
                    await self._client.initialize()
                else:
                    # So that not even the first call takes a second round trip.
                    for script in self._scripts.values():
                        await self._connected.script_load(script.text)
        except A2MError:
            await self.close()
            raise

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            async with _translated():
                await client.aclose()

    async def ping(self) -> None:
        async with _translated():
            await self._connected.ping()

    async def read(self, name: str, key: str, arguments: Sequence[Argument]) -> Any:
        """What a script that writes nothing returns; asked again once if the connection was lost."""
        async with _translated():
            try:
                return await self._run(name, key, arguments)
            except RedisConnectionError:
                return await self._run(name, key, arguments)

    async def write(self, name: str, key: str, arguments: Sequence[Argument]) -> Any:
        """What a script returns that may write."""
        async with _translated():
            return await self._run(name, key, arguments)

    async def command(self, *parts: Argument) -> Any:
        """What a command of one key returns."""
        async with _translated():
            return await self._execute(*parts)

    async def keys(self, prefix: str, size: int) -> AsyncGenerator[list[bytes]]:
        """All keys that begin so, on every server, about `size` at a time; one may come twice."""
        page: list[bytes] = []
        async with _translated():
            async for key in self._connected.scan_iter(match=_literal(prefix) + "*", count=size):
                page.append(key)
                if len(page) >= size:
                    yield page
                    page = []
        yield page

    async def setting(self, name: str) -> str | None:
        """What a server (of a Cluster, any one) has for a setting; None where it does not say."""
        async with _translated():
            found = await self._connected.config_get(name)
        value = found.get(name, found.get(name.encode()))
        return value.decode() if isinstance(value, bytes) else value

    async def memory(self) -> tuple[int, int | None]:
        """Bytes that the data take, and those that they may take: of a Cluster, of all its primaries."""
        client = self._connected
        async with _translated():
            if self.is_cluster:
                told = await client.info("memory", target_nodes=RedisCluster.PRIMARIES)
                nodes = [*told.values()] if "used_memory" not in told else [told]
            else:
                nodes = [await client.info("memory")]
        limits = [int(node.get("maxmemory", 0)) for node in nodes]
        return sum(int(node["used_memory"]) for node in nodes), sum(limits) if all(limits) else None

    async def together(self, calls: Iterable[Awaitable[T]]) -> list[T]:
        """The results of calls made at once; the first failure is raised when all have ended."""
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    async def _run(self, name: str, key: str, arguments: Sequence[Argument]) -> Any:
        script = self._scripts[name]
        try:
            return await self._execute("EVALSHA", script.sha, 1, key, *arguments)
        except NoScriptError:
            # A server that restarted, failed over or was flushed; EVAL teaches it the script again.
            return await self._execute("EVAL", script.text, 1, key, *arguments)

    async def _execute(self, *parts: Argument) -> Any:
        # The client of a Cluster raises when it runs out of connections instead of waiting for one.
        with tracing.querying("redis", str(parts[0])):
            async with self._parallel:
                return await self._connected.execute_command(*parts)

    def _server(self) -> Redis:
        settings = self._settings
        pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType] untyped **kwargs
            settings.url,
            password=self._password,
            max_connections=settings.max_redis_connections,
            timeout=settings.command_timeout,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=settings.connect_timeout,
            socket_timeout=settings.command_timeout,
        )
        return Redis.from_pool(pool)

    def _cluster(self) -> RedisCluster:
        settings = self._settings
        return RedisCluster.from_url(
            settings.url,
            password=self._password,
            max_connections=settings.max_redis_connections,
            socket_connect_timeout=settings.connect_timeout,
            socket_timeout=settings.command_timeout,
        )

    @property
    def _connected(self) -> Any:  # the two clients share the methods used here and no base class
        if self._client is None:
            raise unavailable(WHAT, "the store is not open")
        return self._client


async def by_name(database: Database, key: str, size: int) -> AsyncGenerator[list[str]]:
    """The members of a sorted set of equal scores, `size` at a time; none is missed that stays."""
    start = "-"
    while True:
        members = await database.command("ZRANGEBYLEX", key, start, "+", "LIMIT", 0, size)
        if members:
            yield [member.decode() for member in members]
        if len(members) < size:
            return
        start = "(" + members[-1].decode()


def _password(settings: WorkingSettings) -> str | None:
    if settings.password_file is None:
        return None
    try:
        password = settings.password_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"A2M_WORKING_PASSWORD_FILE cannot be read: {error}") from error
    if not password:
        raise ValueError(f"A2M_WORKING_PASSWORD_FILE: {settings.password_file} holds no password")
    return password


def _literal(text: str) -> str:
    """A pattern that matches a text alone."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in text)


@asynccontextmanager
async def _translated() -> AsyncGenerator[None]:
    try:
        yield
    except OutOfMemoryError as error:
        raise unavailable(
            WHAT, "it has reached maxmemory and nothing was written; raise maxmemory"
        ) from error
    except ResponseError as error:
        text = str(error)
        if "OOM command not allowed" in text:
            raise unavailable(
                WHAT, "it has reached maxmemory and nothing was written; raise maxmemory"
            ) from error
        if text.startswith(_PASSING):
            raise unavailable(WHAT, text) from error
        raise A2MError(Code.INTERNAL, f"{WHAT} refused a command: {text}") from error
    except (RedisError, OSError) as error:
        raise unavailable(WHAT, str(error) or type(error).__name__) from error
