"""The fixtures give every suite working engines."""

import subprocess
from collections.abc import Callable

import pytest
from redis import Redis

from a2m_engines.postgres import binaries
from a2m_engines.pytest_plugin import _names_database, _with_database


def query(url: str, statement: str) -> str:
    command = [binaries() / "psql", "-XAtq", f"--dbname={url}", f"--command={statement}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_redis_client_writes_to_the_valkey_fixture(valkey_url: str) -> None:
    with Redis.from_url(valkey_url) as client:
        assert client.set("fixture", "works")
        assert client.get("fixture") == b"works"


def test_the_postgres_fixture_has_pgvector(postgres_url: str) -> None:
    query(postgres_url, "CREATE EXTENSION vector")
    assert query(postgres_url, "SELECT '[3,4]'::vector <-> '[0,0]'") == "5"


def test_each_call_of_the_factory_makes_an_empty_database(postgres_database: Callable[[], str]) -> None:
    first, second = postgres_database(), postgres_database()
    query(first, "CREATE TABLE kept (id int)")
    assert query(second, "SELECT to_regclass('kept')") == ""


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("redis://host:6379", False),
        ("redis://host:6379/", False),
        ("redis://host:6379/3", True),
        ("redis://host?db=3", True),
        ("unix:///run/valkey.sock", True),
    ],
)
def test_a_server_from_outside_is_shared_by_a_database_a_worker(url: str, named: bool) -> None:
    assert _names_database(url) is named


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@host:5432/old?sslmode=require", "postgresql://u:p@host:5432/new?sslmode=require"),
        ("postgresql://u@host", "postgresql://u@host/new"),
        ("postgresql://a2m@/postgres?host=%2Frun%2Fpg", "postgresql://a2m@/new?host=%2Frun%2Fpg"),
    ],
)
def test_a_fresh_database_is_on_the_same_server(url: str, expected: str) -> None:
    assert _with_database(url, "new") == expected
