import pytest

from a2m_server.contract import TierContract
from a2m_server.memory import MemoryTier


class TestMemoryTier(TierContract):
    @pytest.fixture
    async def store(self) -> MemoryTier:
        return MemoryTier()
