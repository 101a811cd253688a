"""Serve the semantic tier: `python -m a2m_semantic [--stdio]`."""

from __future__ import annotations

from a2m_semantic.app import create_store
from a2m_semantic.settings import SemanticSettings
from a2m_server.command import main

if __name__ == "__main__":
    main(create_store, SemanticSettings, prog="a2m_semantic")
