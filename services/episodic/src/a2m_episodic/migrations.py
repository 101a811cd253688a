"""The schema, brought up to date once however many services start at the same time."""

from __future__ import annotations

from a2m_episodic.database import SCHEMA, Connection, rows, single
from a2m_episodic.queries import migrations, query
from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.values import lock_number
from a2m_protocol.errors import A2MError, Code


async def migrate(settings: EpisodicSettings) -> list[int]:
    """Apply the migrations that are missing, under an advisory lock; which they were.

    Raises `A2MError` when the database is newer than this program, or the lock is not free in a minute.
    """
    async with single(settings) as connection, connection.transaction():
        await connection.execute(b"SET LOCAL lock_timeout = '60s'")
        number = lock_number("migrations", SCHEMA)
        await rows(connection, query("migrate", "lock"), {"number": number})
        return await _apply(connection)


async def _apply(connection: Connection) -> list[int]:
    await connection.execute(query("migrate", "prepare", schema=SCHEMA).encode())
    done = {row["number"] for row in await rows(connection, query("migrate", "applied"))}
    known = migrations()
    newer = done - set(known)
    if newer:
        raise A2MError(
            Code.INTERNAL,
            f"the episodic tier's database has migration {max(newer)}, and this version knows up to "
            f"{max(known)}: run a version as new as the one that wrote it",
        )
    missing = [number for number in known if number not in done]
    for number in missing:
        name, script = known[number]
        await connection.execute(script.encode())
        await rows(connection, query("migrate", "record"), {"number": number, "name": name})
    return missing
