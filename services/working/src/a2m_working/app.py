"""The working tier as a web application."""

from __future__ import annotations

from fastapi import FastAPI

from a2m_server.http import create_app
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore


def create(settings: WorkingSettings | None = None) -> FastAPI:
    """Settings (from the environment when not given), store, app; connects when the app starts."""
    chosen = settings or WorkingSettings()
    return create_app(WorkingStore(chosen), chosen)
