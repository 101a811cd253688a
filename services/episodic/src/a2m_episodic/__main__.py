"""Serve the episodic tier: `python -m a2m_episodic [--stdio]`."""

from __future__ import annotations

from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_server.command import main

if __name__ == "__main__":
    main(EpisodicStore, EpisodicSettings, prog="a2m_episodic")
