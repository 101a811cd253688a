"""Many agents at once: each sees its own turns in order, and nothing is lost or held twice."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any
from uuid import uuid4

import pytest

from a2m_protocol.client import Client

SESSIONS = 50
TURNS = 12
WINDOW = 20
CAPACITY = 20

pytestmark = pytest.mark.timeout(240)


async def test_fifty_sessions_at_once_keep_their_order_and_lose_nothing(federation: Any, audit: Any) -> None:
    mark = uuid4().hex
    sessions = [f"{mark}/{number}" for number in range(SESSIONS)]

    async def converse(client: Client, session: str) -> None:
        said: list[str] = []
        for turn in range(TURNS):
            asked, answered = f"{session} asks {turn}", f"{session} answers {turn}"
            answer = await client.remember(
                [
                    {"content": asked, "role": "user", "group": f"{session}/{turn // 2}"},
                    {"content": answered, "role": "assistant"},
                ],
                session=session,
            )
            assert len(set(answer["ids"])) == 2
            said += [asked, answered]
            window = await client.timeline(where={"session": session}, limit=WINDOW)
            assert [record["content"] for record in window["records"]] == said[-WINDOW:]

    async with Client.http(federation.url, timeout=60.0) as client:
        await asyncio.gather(*(converse(client, session) for session in sessions))

    held = audit.settle(sessions)
    where = defaultdict(list)
    groups = defaultdict(set)
    for tier, entries in held.items():
        for entry in entries:
            where[entry["id"]].append(tier)
            groups[entry.get("group")].add(tier)
    assert len(where) == SESSIONS * TURNS * 2
    assert {record_id: at for record_id, at in where.items() if len(at) != 1} == {}
    assert {group: at for group, at in groups.items() if group is not None and len(at) != 1} == {}
    assert len(held["episodic"]) >= SESSIONS * (TURNS * 2 - CAPACITY)


async def test_one_id_written_by_many_at_once_is_written_once(federation: Any, audit: Any) -> None:
    session = uuid4().hex
    records = [{"id": f"{session}/{number}", "content": str(number)} for number in range(30)]

    async with Client.http(federation.url, timeout=60.0) as client:
        answers = await asyncio.gather(
            *(client.remember(records, session=session) for _ in range(10)),
            *(client.close_session(session) for _ in range(3)),
        )
        assert all(answer["ids"] == [r["id"] for r in records] for answer in answers if "ids" in answer)
        found = await client.timeline(where={"session": session})
        assert [record["id"] for record in found["records"]] == [record["id"] for record in records]
    held = audit.settle([session])
    assert sorted(e["id"] for entries in held.values() for e in entries) == sorted(r["id"] for r in records)


async def test_one_key_written_by_many_at_once_is_one_record_with_every_revision(
    federation: Any, tiers: Any
) -> None:
    key, writers = f"facts/{uuid4().hex}", 20
    async with Client.http(federation.url, timeout=60.0) as client:
        answers = await asyncio.gather(
            *(
                client.remember([{"content": str(n), "key": key, "tier": "semantic" if n % 2 else "working"}])
                for n in range(writers)
            )
        )
        record = (await client.fetch(key))["record"]
    assert len({answer["ids"][0] for answer in answers}) == 1
    assert record["revision"] == writers - 1
    held = [e for tier in tiers.values() for e in tier.entries(where={"key": key})]
    assert [entry["id"] for entry in held] == [record["id"]]
