from __future__ import annotations

import pytest

from a2m_semantic.store import SemanticStore
from a2m_server.contract import EmbeddingContract, TierContract


@pytest.mark.asyncio(loop_scope="module")
class TestSemantic(TierContract, EmbeddingContract):
    """On Edge, on the client's memory and on a server."""

    @pytest.fixture
    def store(self, shared_store: SemanticStore) -> SemanticStore:
        return shared_store
