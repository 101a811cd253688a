"""The procedural service as an application."""

from __future__ import annotations

from fastapi import FastAPI

from a2m_procedural.settings import Settings
from a2m_procedural.store import ProceduralStore
from a2m_server.http import create_app


def create() -> FastAPI:
    """The HTTP application, by the settings in the environment."""
    settings = Settings()
    return create_app(create_store(settings), settings)


def create_store(settings: Settings) -> ProceduralStore:
    return ProceduralStore(settings.place())
