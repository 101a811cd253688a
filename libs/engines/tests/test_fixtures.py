"""The fixtures give every suite working engines."""

import subprocess
from collections.abc import Callable

from redis import Redis

from a2m_engines.postgres import binaries


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
