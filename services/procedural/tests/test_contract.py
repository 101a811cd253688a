from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from a2m_procedural.store import Place, ProceduralStore
from a2m_server.contract import TierContract
from a2m_server.store import TierStore


class TestProceduralStore(TierContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[TierStore]:
        store = ProceduralStore(Place(tmp_path / "skills"))
        await store.open()
        yield store
        await store.close()
