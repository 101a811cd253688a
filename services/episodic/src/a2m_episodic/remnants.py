"""What is kept of ids, in every table that has a row of a record."""

from __future__ import annotations

from collections.abc import Sequence

from a2m_episodic.database import Database, rows
from a2m_episodic.queries import query
from a2m_server.values import Remnant


async def find(database: Database, ids: Sequence[str]) -> list[Remnant]:
    """Each table that has something of an id; a tombstone is nothing.

    Rows beside a record that is gone cannot be told whose they were: they count as of every id without one.
    """
    async with database.connection() as connection:
        named = await rows(connection, query("remnants", "named"), {"ids": list(ids)})
        strays = await rows(connection, query("remnants", "strays"))
    places = {(row["id"], row["place"]) for row in named}
    live = {row["id"] for row in named if row["place"] == "records"}
    places |= {(record_id, row["place"]) for row in strays for record_id in ids if record_id not in live}
    return [Remnant(record_id, place) for record_id, place in sorted(places)]
