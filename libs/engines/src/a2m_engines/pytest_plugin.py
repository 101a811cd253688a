"""Fixtures of real engines for every test suite, one set a session and so one a pytest-xdist worker.

Taken from `A2M_TEST_REDIS_URL` and `A2M_TEST_POSTGRES_URL` where set, from testcontainers where Docker
answers, and from the wheels otherwise. Tests share the servers: they keep apart by their own database
(`postgres_database`) and by their own owners and session names, and never flush.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from a2m_engines.containers import docker_answers, postgres_container, valkey_container
from a2m_engines.postgres import Postgres, binaries
from a2m_engines.valkey import Valkey

PostgresDatabase = Callable[[], str]
"""Makes a fresh, empty database and returns its URL."""


def pytest_configure(config: pytest.Config) -> None:
    # The wheel of Valkey brings a `valkey_url` fixture of its own: a server on TCP, one a test.
    if config.pluginmanager.has_plugin("valkey"):
        config.pluginmanager.unregister(name="valkey")


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory, worker_index: int) -> Iterator[str]:
    """The URL of a Valkey or Redis server, for `redis.Redis.from_url`."""
    url = os.environ.get("A2M_TEST_REDIS_URL")
    if url:
        yield url if _names_database(url) else f"{url.rstrip('/')}/{worker_index}"
    elif docker_answers():
        with valkey_container() as started:
            yield started
    else:
        with Valkey(tmp_path_factory.mktemp("valkey")) as engine:
            yield engine.url


@pytest.fixture(scope="session")
def postgres_server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server with pgvector, as a user that may create databases and extensions."""
    url = os.environ.get("A2M_TEST_POSTGRES_URL")
    if url:
        yield url
    elif docker_answers():
        with postgres_container() as started:
            yield started
    else:
        with Postgres(tmp_path_factory.mktemp("postgres"), durable=False) as engine:
            yield engine.url


@pytest.fixture(scope="session")
def postgres_database(postgres_server_url: str) -> Iterator[PostgresDatabase]:
    """A factory of fresh databases, each dropped at the end of the session."""
    made: list[str] = []

    def make() -> str:
        name = f"test_{uuid4().hex}"
        _sql(postgres_server_url, f"CREATE DATABASE {name} TEMPLATE template0")
        made.append(name)
        return _with_database(postgres_server_url, name)

    yield make
    for name in made:
        _sql(postgres_server_url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def postgres_url(postgres_database: PostgresDatabase) -> str:
    """The URL of a fresh database, one a test module."""
    return postgres_database()


@pytest.fixture(scope="session")
def worker_index() -> int:
    """The number of this pytest-xdist worker, 0 without xdist."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def _names_database(url: str) -> bool:
    scheme, _, rest = url.partition("://")
    return scheme == "unix" or "?" in rest or "/" in rest.rstrip("/")


def _with_database(url: str, name: str) -> str:
    address, mark, query = url.partition("?")
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/{name}{mark}{query}"


def _sql(url: str, statement: str) -> None:
    # `psql` of the wheel rather than a driver: the driver belongs to the service that is tested.
    command = [binaries() / "psql", "--no-psqlrc", "--quiet", f"--dbname={url}", f"--command={statement}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    if finished.returncode != 0:
        pytest.fail(f"{statement}: {finished.stderr.strip()}", pytrace=False)
