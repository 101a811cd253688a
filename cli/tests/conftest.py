import io
from collections.abc import Iterator

import pytest
from command_line import Cli, serving

from a2m_server.memory import MemoryTier


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(capsysbinary)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input with nothing in it."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with nothing in it, which the commands talk to."""
    with serving(MemoryTier(), monkeypatch) as url:
        yield url
