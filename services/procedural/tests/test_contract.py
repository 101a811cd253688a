from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_server.contract import EmbeddingContract, TierContract
from a2m_server.store import TierStore


class TestProceduralStore(TierContract, EmbeddingContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[TierStore]:
        store = ProceduralStore(Place(tmp_path / "skills"))
        await store.open()
        yield store
        await store.close()

    @pytest.fixture
    async def fresh(self, store: TierStore) -> TierStore:
        return store
