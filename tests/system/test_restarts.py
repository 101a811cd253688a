"""Whatever process is killed in mid-import, the import goes on by itself and ends with the same result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a2m_cli.importing import Importer, Report, items_of
from a2m_cli.transcripts import EPOCH_MS
from a2m_protocol.client import Client

VICTIMS = ("episodic", "valkey", "semantic", "router", "postgres", "procedural", "working")
# Few records a call, so that there are many calls for the kills to fall into.
BATCH = 3
RECOVERY_SECONDS = 90.0

pytestmark = pytest.mark.timeout(300)


async def test_an_import_outlives_the_death_of_every_process_and_ends_with_the_same_result(
    federation: Any, audit: Any, poll: Callable[..., Any], make_conversations: Callable[[str], Any]
) -> None:
    given = make_conversations("shipped")
    killed: dict[str, int] = {}
    told_at: list[int] = []

    def told(report: Report, _: str) -> None:
        following = given.turns * (len(killed) + 1) // (len(VICTIMS) + 2)
        if len(killed) < len(VICTIMS) and report.done >= following:
            victim = VICTIMS[len(killed)]
            killed[victim] = federation.kill(victim)
            told_at.append(report.done)

    async def run() -> Report:
        async with Client.http(federation.url) as client:
            return await Importer(client, listener=told).run(items_of(given.files, EPOCH_MS), size=BATCH)

    report = await run()
    assert [*killed] == [*VICTIMS]
    assert told_at[-1] < given.turns
    assert (report.done, report.refused) == (given.turns, [])

    def restarted() -> bool:
        return federation.serves() and all(
            pid not in (None, killed.get(name)) for name, pid in federation.pids.items()
        )

    poll("the restart of all that was killed", restarted, RECOVERY_SECONDS)
    audit.check(given)

    again = await run()
    assert (again.written, again.there, again.refused) == (0, given.turns, [])
    audit.check(given)
