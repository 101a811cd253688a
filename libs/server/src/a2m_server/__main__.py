"""Serve the in-memory store: `python -m a2m_server [--stdio]`."""

from __future__ import annotations

from a2m_server.command import main
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings


def create_store(_: ServerSettings) -> MemoryTier:
    return MemoryTier()


if __name__ == "__main__":
    main(create_store, ServerSettings, prog="a2m_server")
