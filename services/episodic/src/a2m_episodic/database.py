"""The pool of connections, transactions, and the one place where a driver's error becomes ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
import psycopg_pool
from pgvector.psycopg import register_vector_async
from psycopg.rows import DictRow, dict_row

from a2m_episodic.queries import query
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.trouble import reason
from a2m_protocol.errors import A2MError, Code, invalid_params, unavailable
from a2m_server import tracing

Connection: TypeAlias = "psycopg.AsyncConnection[DictRow]"
Values: TypeAlias = Mapping[str, Any]
Result = TypeVar("Result")

SCHEMA = "episodic"
WHAT = "the episodic tier's Postgres"
ATTEMPTS = 4

_CONFIGURE = query("session", "configure").encode()


class Database:
    """Connections that come back by themselves; every method raises `A2MError` alone."""

    def __init__(self, settings: EpisodicSettings) -> None:
        self._settings = settings
        self._refused: psycopg.OperationalError | None = None
        self._pool = psycopg_pool.AsyncConnectionPool[Connection](
            settings.url.get_secret_value(),
            connection_class=_watched(self._tried),
            kwargs={"autocommit": True, "row_factory": dict_row, **_client(settings)},
            min_size=min(settings.pool_min, settings.pool_max),
            max_size=settings.pool_max,
            timeout=settings.pool_wait,
            max_waiting=settings.pool_waiting,
            reconnect_timeout=settings.pool_wait,
            check=psycopg_pool.AsyncConnectionPool[Connection].check_connection,
            configure=self.configure,
            open=False,
            name=settings.name,
        )

    async def open(self) -> None:
        with translated():
            await self._pool.open(wait=False)

    async def close(self) -> None:
        with translated():
            await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A connection in autocommit, for reads of one statement."""
        with translated(), tracing.querying("postgresql", "session"):
            try:
                async with self._pool.connection() as connection:
                    try:
                        yield connection
                    except psycopg.errors.ReadOnlySqlTransaction:
                        # The next one may lead to the server that takes writes by now.
                        await connection.close()
                        raise
            except (psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests) as error:
                raise unavailable(WHAT, self._none_free()) from error

    @property
    def waiting(self) -> int:
        """How many calls wait for a connection."""
        return self._pool.get_stats().get("requests_waiting", 0)

    async def transact(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """The result of `work` in a transaction, done again when the engine chose it to break a deadlock."""
        for attempt in range(ATTEMPTS):
            try:
                async with self.connection() as connection, connection.transaction():
                    return await work(connection)
            except A2MError as error:
                if attempt + 1 == ATTEMPTS or not isinstance(error.__cause__, _AGAIN):
                    raise
                await asyncio.sleep(0.01 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _tried(self, refused: psycopg.OperationalError | None) -> None:
        """Remember why the last attempt to connect failed: the pool only says that time ran out."""
        self._refused = refused

    def _none_free(self) -> str:
        if self._refused is not None:
            return reason(self._refused)
        most = self._settings.pool_max
        return (
            f"no connection was free in time: raise A2M_EPISODIC_POOL_MAX ({most}) unless it answers slowly"
        )

    async def configure(self, connection: Connection) -> None:
        """Make a new connection one of ours."""
        milliseconds = int(self._settings.statement_timeout * 1000)
        await connection.execute(_CONFIGURE, {"schema": SCHEMA, "timeout": str(milliseconds)})
        await register_vector_async(connection)


async def rows(connection: Connection, query: str, values: Values | None = None) -> list[DictRow]:
    """All rows of a query, in binary so that numbers arrive as they are."""
    cursor = await connection.execute(query.encode(), values or {}, binary=True)
    return await cursor.fetchall()


@asynccontextmanager
async def single(settings: EpisodicSettings) -> AsyncGenerator[Connection]:
    """A connection of its own, outside of the pool, in autocommit."""
    with translated():
        connection = await psycopg.AsyncConnection[DictRow].connect(
            settings.url.get_secret_value(), autocommit=True, row_factory=dict_row, **_client(settings)
        )
        async with connection:
            yield connection


@contextmanager
def translated() -> Generator[None]:
    """The error boundary: what psycopg raises inside leaves as `A2MError`, its cause kept."""
    try:
        yield
    except psycopg.errors.NumericValueOutOfRange as error:
        raise invalid_params("a number became too large for the episodic tier") from error
    except _DOWN as error:
        raise unavailable(WHAT, reason(error)) from error
    except psycopg.Error as error:
        # Its text may quote a record, which is nobody's to see: the cause is for the log.
        raise A2MError(Code.INTERNAL, f"{WHAT} refused: {reason(error)}") from error


_AGAIN = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_DOWN = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg_pool.PoolClosed,
)


def _watched(tried: Callable[[psycopg.OperationalError | None], None]) -> type[Connection]:
    """Connections that tell of each attempt to make one: None, or why it failed."""

    class Watched(psycopg.AsyncConnection[DictRow]):
        @classmethod
        async def connect(cls, *given: Any, **more: Any) -> Any:  # as the driver declares it many times over
            try:
                connection = await super().connect(*given, **more)
            except psycopg.OperationalError as error:
                tried(error)
                raise
            tried(None)
            return connection

    return Watched


def _client(settings: EpisodicSettings) -> dict[str, Any]:
    return {"application_name": f"a2m-{settings.name}", "connect_timeout": max(2, int(settings.pool_wait))}
