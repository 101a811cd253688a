"""What is wrong with Postgres, in words: never the server's own, which may quote a record or name a host."""

from __future__ import annotations

import psycopg

_STATES = {
    "53100": "its disk is full: make room there",
    "53200": "it is out of memory",
    "53300": "all its connections are taken: raise max_connections, or close those of others",
    "57014": "it cancelled a query, as it does beyond A2M_EPISODIC_STATEMENT_TIMEOUT",
    "57P01": "it is shutting down",
    "57P02": "it is starting again after a crash",
    "57P03": "it is starting or stopping",
    "25006": "it takes no writes: it is a replica, or set to be read-only",
}

# A connection that could not be made comes without a state.
_TEXTS = {
    "too many clients": _STATES["53300"],
    "too many connections": _STATES["53300"],
    "connection slots": _STATES["53300"],
    "starting up": _STATES["57P03"],
    "shutting down": _STATES["57P03"],
    "recovery mode": _STATES["57P03"],
    "No space left": _STATES["53100"],
    "authentication failed": "it refuses this user or password",
    "pg_hba.conf": "it refuses connections from here",
    "does not exist": "the database or the user of A2M_EPISODIC_URL does not exist",
    "Connection refused": "nothing listens there",
    "No such file": "nothing listens there",
    "timeout expired": "it does not answer",
}


def reason(error: psycopg.Error) -> str:
    """Why a call failed, and what to do about it where that is known."""
    if error.sqlstate is not None:
        return _STATES.get(error.sqlstate) or f"{type(error).__name__} ({error.sqlstate})"
    text = str(error)
    return next((ours for theirs, ours in _TEXTS.items() if theirs in text), "the connection failed")
