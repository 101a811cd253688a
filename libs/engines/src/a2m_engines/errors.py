"""What can go wrong with an engine."""


class EngineError(Exception):
    """An engine cannot be prepared, started or reached; the message says why and what to do."""
