from a2m_server.contract import TierContract


class TestWorkingStore(TierContract):
    """The port's contract, on one server."""
