"""The episodic tier keeps the contract of every tier."""

from a2m_server.contract import EmbeddingContract, TierContract


class TestEpisodic(TierContract, EmbeddingContract):
    pass
