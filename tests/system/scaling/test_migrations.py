"""Services that start at once bring the schema up to date once, whoever is first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from pydantic import SecretStr
from replicas import HOST, Programs, eventually, free_ports

import a2m_episodic.migrations
from a2m_engines.process import is_running
from a2m_episodic.migrations import migrate
from a2m_episodic.queries import migrations
from a2m_episodic.settings import EpisodicSettings
from a2m_protocol.client import Client

SERVICES = 4
OLD = 2
"""The version that a database is upgraded from."""

pytestmark = pytest.mark.timeout(120)


async def _start_together(url: str, folder: Path, programs: Programs, obstacle: str) -> list[str]:
    """The addresses of services that were started at once over a database, all of them ready.

    They are held up by `obstacle`, an uncommitted statement, until all of them have come to the migrations.
    """
    ports = free_ports(SERVICES)
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as looking:
        holder.execute(obstacle)
        pids = {
            port: programs.start(
                "a2m_episodic",
                {"A2M_EPISODIC_HOST": HOST, "A2M_EPISODIC_PORT": str(port), "A2M_EPISODIC_URL": url},
                folder / f"{port}.log",
            )
            for port in ports
        }

        def held_up() -> bool:
            found = looking.execute(_WAITING).fetchone()
            return found is not None and found[0] == SERVICES

        await eventually("all services wait", held_up)
        holder.rollback()
    for port, pid in pids.items():
        # One that ran a migration a second time, or saw half of one, ends with an error instead.
        await eventually(f"service at {port}", lambda port=port, pid=pid: _ended(pid) or _ready(port))
        assert not _ended(pid), (folder / f"{port}.log").read_text()
    return [f"http://{HOST}:{port}" for port in ports]


_WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def _ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or not is_running(psutil.Process(pid))


def _ready(port: int) -> bool:
    try:
        return httpx.get(f"http://{HOST}:{port}/readyz", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _applied(url: str) -> dict[int, str]:
    """The transaction in which each migration was made."""
    with psycopg.connect(url) as connection:
        made = connection.execute("SELECT number, xmin::text FROM episodic.migrations").fetchall()
    return dict(made)


async def test_many_services_that_start_on_an_empty_database_migrate_it_once(
    postgres_database: Callable[[], str], tmp_path: Path
) -> None:
    url = postgres_database()
    with Programs() as programs:
        urls = await _start_together(url, tmp_path, programs, "CREATE SCHEMA episodic")
        made = _applied(url)
        assert sorted(made) == sorted(migrations())
        assert len({*made.values()}) == 1
        async with Client.http(urls[0]) as first, Client.http(urls[-1]) as last:
            await first.remember([{"id": "a", "content": "kept"}])
            told: Any = await last.timeline()
            assert [record["content"] for record in told["records"]] == ["kept"]


async def test_many_services_that_start_on_an_older_database_upgrade_it_once_and_lose_nothing(
    postgres_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_database()
    with monkeypatch.context() as older:
        known = {number: script for number, script in migrations().items() if number <= OLD}
        older.setattr(a2m_episodic.migrations, "migrations", lambda: known)
        assert await migrate(EpisodicSettings(url=SecretStr(url))) == [*known]
    with psycopg.connect(url) as connection:
        connection.execute(_OLD_RECORDS)
    before = _applied(url)
    assert sorted(before) == [*known]
    with Programs() as programs:
        urls = await _start_together(url, tmp_path, programs, "LOCK TABLE episodic.migrations")
        after = _applied(url)
        assert sorted(after) == sorted(migrations())
        assert {number: after[number] for number in before} == before
        assert len({made for number, made in after.items() if number > OLD}) == 1
        for each in urls:
            async with Client.http(each) as client:
                told: Any = await client.timeline()
                assert [record["content"] for record in told["records"]] == [
                    f"old {n}" for n in range(1, 501)
                ]


_OLD_RECORDS = """
    WITH bucket AS (
        INSERT INTO episodic.buckets (name, last, records) VALUES (gen_random_uuid(), 500, 500) RETURNING id
    )
    INSERT INTO episodic.records (
        pk, seq, bucket, salience, revision, moves, access_count, etag, id, created_at, status, aliases,
        facts, content
    )
    SELECT n, n, bucket.id, 1, 0, 0, 0, gen_random_uuid(), 'old-' || n, '2026-01-01T00:00:00.000Z',
        'active', '{}', '{}', 'old ' || n
    FROM bucket, generate_series(1, 500) n
"""
