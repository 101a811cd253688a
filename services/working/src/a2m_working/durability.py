"""What a server is set to do with acknowledged writes, where it tells."""

from __future__ import annotations

from a2m_protocol.errors import A2MError
from a2m_working.database import Database

WANTED = {
    "appendonly": ("yes", "a restart of the server loses everything since its last snapshot"),
    "appendfsync": (
        "always",
        "a loss of power, or a kill while the disk is slow, loses what was acknowledged",
    ),
    "maxmemory-policy": ("noeviction", "the server drops records by itself when its memory is full"),
}
"""Settings that keep what was acknowledged, and what may happen otherwise."""


async def concerns(database: Database) -> list[str]:
    """What of `WANTED` is set otherwise; nothing where the server does not let its settings be read."""
    found: list[str] = []
    for name, (wanted, otherwise) in WANTED.items():
        try:
            value = await database.setting(name)
        except A2MError:
            continue
        if value not in (None, wanted):
            found.append(f"{name} is {value} and not {wanted}: {otherwise}")
    return found
