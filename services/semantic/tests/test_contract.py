from __future__ import annotations

from a2m_server.contract import TierContract


class TestSemantic(TierContract):
    """On Edge, on the client's memory and on a server, by the `store` fixture."""
