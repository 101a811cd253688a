"""Settings to store to app."""

from __future__ import annotations

from fastapi import FastAPI

from a2m_semantic.engine import Engine
from a2m_semantic.settings import SemanticSettings
from a2m_semantic.store import SemanticStore
from a2m_server.http import create_app


def create() -> FastAPI:
    """The semantic server, from the environment."""
    settings = SemanticSettings()
    return create_app(create_store(settings), settings)


def create_store(settings: SemanticSettings) -> SemanticStore:
    """A store that is not open yet; raises `ValueError` when the key file holds no key."""
    return SemanticStore(
        _engine(settings),
        metric=settings.metric,
        dimensions=settings.dimensions,
        tombstone_days=settings.tombstone_days,
    )


def _engine(settings: SemanticSettings) -> Engine:
    # Each library takes a moment and memory to load, so that only the one in use is.
    if settings.url is None:
        from a2m_semantic.edge import EdgeEngine

        return EdgeEngine(settings.path, settings.metric, settings.flush_seconds)
    from a2m_semantic.server import ServerEngine

    return ServerEngine(
        settings.url, settings.collection, settings.metric, _api_key(settings), settings.timeout
    )


def _api_key(settings: SemanticSettings) -> str | None:
    if settings.api_key_file is None:
        return None
    try:
        key = settings.api_key_file.read_text().strip()
    except OSError as error:
        raise ValueError(f"A2M_SEMANTIC_API_KEY_FILE cannot be read: {error}") from error
    if not key:
        raise ValueError(f"A2M_SEMANTIC_API_KEY_FILE: {settings.api_key_file} holds no key")
    return key
