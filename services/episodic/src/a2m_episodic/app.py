"""The episodic tier as a web application."""

from __future__ import annotations

from fastapi import FastAPI

from a2m_episodic.settings import EpisodicSettings
from a2m_episodic.store import EpisodicStore
from a2m_server.http import create_app


def create(settings: EpisodicSettings | None = None) -> FastAPI:
    """Settings (from the environment when not given), store, app; connects when the app starts."""
    chosen = settings or EpisodicSettings()
    return create_app(EpisodicStore(chosen), chosen)
