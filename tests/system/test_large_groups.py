"""A group moves whole however large it is, in calls that the tiers take."""

from __future__ import annotations

from typing import Any

import pytest

MEGABYTE = 1_000_000
MEMBERS = 36  # more than the 32 MB that a server takes in one call

pytestmark = pytest.mark.timeout(120)


def test_a_group_larger_than_a_call_moves_whole(router: Any, tiers: Any) -> None:
    session = "large/group"
    for number in range(MEMBERS):
        record = {"content": f"{number} " + "x" * (MEGABYTE - 10), "session": session, "group": "large"}
        router.call("remember", records=[record])
    closed = router.call("session/close", session=session)
    held = {name: len(tier.entries(where={"session": session})) for name, tier in tiers.items()}
    assert held == {"working": 0, "episodic": MEMBERS, "semantic": 0, "procedural": 0}
    assert closed["flushed"] in (0, MEMBERS)  # the spill may have been first
    shown = [router.call("timeline", where={"session": session}, limit=2)["records"][-1]]
    assert shown[0]["content"].startswith(f"{MEMBERS - 1} ")
    router.call("forget", where={"session": session})
