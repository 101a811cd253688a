"""Serve the procedural tier: `python -m a2m_procedural [--stdio]`."""

from __future__ import annotations

from a2m_procedural.app import create_store
from a2m_procedural.settings import Settings
from a2m_server.command import main

if __name__ == "__main__":
    main(create_store, Settings, prog="a2m_procedural")
