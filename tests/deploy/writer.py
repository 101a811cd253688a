"""A client that goes on writing, whatever happens to the servers, and knows what was acknowledged."""

from __future__ import annotations

import threading
from pathlib import Path

from a2m_protocol.client import SyncClient
from a2m_protocol.errors import A2MError

_PAGE = 100
_PAUSE_SECONDS = 0.02


class Writer:
    """Writes turns of several sessions, one call after another, until it is stopped."""

    def __init__(self, url: str, token_file: Path, sessions: int = 4) -> None:
        self._url = url
        self._token_file = token_file
        self._sessions = sessions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self.acknowledged: list[str] = []
        self.refused = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def lost(self) -> list[str]:
        """The ids that were acknowledged and are nowhere now."""
        with self._client() as memory:
            return [
                one
                for at in range(0, len(self.acknowledged), _PAGE)
                for one in absent(memory, self.acknowledged[at : at + _PAGE])
            ]

    def _client(self) -> SyncClient:
        return SyncClient.http(self._url, token_file=self._token_file, timeout=10.0)

    def _write(self) -> None:
        with self._client() as memory:
            number = 0
            while not self._stop.wait(_PAUSE_SECONDS):
                number += 1
                draft = {"content": f"turn {number}", "session": f"s{number % self._sessions}"}
                try:
                    self.acknowledged += memory.remember([draft])["ids"]
                except A2MError:
                    self.refused += 1


def absent(memory: SyncClient, ids: list[str]) -> list[str]:
    """Which of up to a page of ids no tier holds."""
    answer = memory.timeline(where={"id": {"in": [*ids]}}, limit=len(ids))
    assert "degraded" not in answer
    found = {record["id"] for record in answer["records"]}
    return [one for one in ids if one not in found]
