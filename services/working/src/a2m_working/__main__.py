"""Serve the working tier: `python -m a2m_working [--stdio]`."""

from __future__ import annotations

from a2m_server.command import main
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore

if __name__ == "__main__":
    main(WorkingStore, WorkingSettings, prog="a2m_working")
