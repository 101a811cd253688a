"""`python -m a2m_server.ready`: what the health checks of containers ask."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from a2m_protocol.errors import unavailable
from a2m_server.http import create_app
from a2m_server.listen import Server, bind, url_of
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings


class Away(MemoryTier):
    """A tier whose database is away while `away` is set."""

    away = False

    async def ready(self) -> None:
        if self.away:
            raise unavailable("the database", "it is away")


@pytest.fixture
def tier() -> Away:
    return Away()


@pytest.fixture
def served(tier: Away) -> Iterator[str]:
    settings = ServerSettings(port=0)
    with bind(settings) as listener:
        server = Server(create_app(tier, settings), settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        yield f"{url_of(listener)}/readyz"
        server.should_exit = True
        thread.join()


def asked(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    told = {"PATH": os.environ["PATH"], **environment}
    command = [sys.executable, "-m", "a2m_server.ready", *arguments]
    return subprocess.run(command, env=told, capture_output=True, text=True, check=False)


def test_a_server_that_is_ready_is_healthy(served: str) -> None:
    done = asked(served)
    assert (done.returncode, done.stdout) == (0, '{"status":"ok"}\n')


def test_the_url_may_be_in_the_environment(served: str) -> None:
    assert asked(A2M_READY=served).returncode == 0


def test_a_server_whose_database_is_away_is_not_healthy_and_says_why(served: str, tier: Away) -> None:
    tier.away = True
    done = asked(served)
    assert done.returncode == 1
    assert "it is away" in done.stdout


def test_nobody_there_is_not_healthy() -> None:
    with bind(ServerSettings(port=0)) as listener:
        url = url_of(listener)
    done = asked(f"{url}/readyz")
    assert done.returncode == 1
    assert url in done.stderr


@pytest.mark.parametrize("url", ["", "nonsense", "https://127.0.0.1/readyz"])
def test_what_is_no_url_is_told(url: str) -> None:
    done = asked(url)
    assert done.returncode == 1
    assert "expected the URL" in done.stderr
