"""Command lines run in this process, against a server in a thread."""

import asyncio
import io
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from a2m_cli.application import main
from a2m_server.http import create_app
from a2m_server.listen import Server, bind, url_of
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings


class Terminal(io.TextIOWrapper):
    """Standard input with somebody there who types this."""

    def __init__(self, typed: str) -> None:
        super().__init__(io.BytesIO(typed.encode()))

    def isatty(self) -> bool:
        return True


class Cli:
    """Runs command lines in this process."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capture
        self.err = ""

    def __call__(self, *arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as exited:
            main(arguments)
        said = self._capture.readouterr()
        self.err = said.err.decode()
        assert (exited.value.code or 0) == status, self.err
        return said.out.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@contextmanager
def serving(store: MemoryTier, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    settings = ServerSettings(port=0)
    with bind(settings) as listener:
        server = Server(create_app(store, settings), settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        monkeypatch.setenv("A2M_URL", url_of(listener))
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
            thread.join()
