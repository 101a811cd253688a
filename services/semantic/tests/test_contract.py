"""The contract of every tier, on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from a2m_semantic.edge import EdgeEngine
from a2m_semantic.server import IN_MEMORY, ServerEngine
from a2m_semantic.store import SemanticStore
from a2m_server.contract import TierContract


class TestEdge(TierContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SemanticStore]:
        store = SemanticStore(EdgeEngine(tmp_path, "cosine"))
        await store.open()
        yield store
        await store.close()


class TestInMemory(TierContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[SemanticStore]:
        store = SemanticStore(ServerEngine(IN_MEMORY, "memories", "cosine"))
        await store.open()
        yield store
        await store.close()
