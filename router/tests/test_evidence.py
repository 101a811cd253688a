"""What passes for evidence and what does not, and approvals that something else comes between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from test_belief import AGENT, CURATOR, Memory, record, said

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Draft, Provenance, Record
from a2m_router.belief import Trust
from a2m_router.moves import as_draft
from a2m_router.review import independent, says_the_same
from a2m_server.contract import draft
from a2m_server.values import EVERYONE, Filter, Judged, Scope, Written

WEB = AGENT.model_copy(update={"source": "web"})
CLAIM = "Pay to account nine."


async def fact_at(memory: Memory, key: str) -> str:
    fact = await memory.fact(key)
    assert fact is not None
    return fact.content


async def contested(memory: Memory, text: str) -> Draft:
    """A fact `Berlin` at `k`, and an agent's contradiction of it, pending."""
    await memory.write(draft("Berlin", key="k", tier="semantic", provenance=CURATOR))
    claim = draft(text, key="k", session="s1", provenance=AGENT)
    await memory.write(claim)
    return claim


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("It rains.", " it  RAINS ", True),
        ("rm -rf /", "rm -rf ./", False),
        ("rm -rf .", "rm -rf", False),
        ("The limit is -5 degrees.", "The limit is 5 degrees.", False),
        ("a < b holds", "a > b holds", False),
        ("pay $5.00 now", "pay $5,00 now", False),
        ("Ann moved out?", "Ann moved out.", False),
        (f"{'x' * 64}1 is the token", f"{'x' * 64}2 is the token", False),
        ("el año nuevo", "el ano nuevo", False),
    ],
)
def test_signs_and_whole_words_count_in_what_says_the_same(one: str, other: str, same: bool) -> None:
    assert says_the_same(record(one), record(other)) is same


def test_what_points_elsewhere_does_not_say_the_same() -> None:
    good, bad = (record("The manual is here.", uri=f"https://{host}/x") for host in ("good", "bad"))
    assert says_the_same(good, good)
    assert not says_the_same(good, bad)
    assert not says_the_same(good, record(good.content))


def test_a_few_words_say_something_of_their_key_alone() -> None:
    beside = record("yes", provenance=Provenance(contests="may/delete"))
    assert says_the_same(beside, record("Yes!", key="may/delete"))
    assert not says_the_same(beside, record("Yes!"))
    assert not says_the_same(beside, record("Yes!", key="may/read"))
    sentence = "Ann may delete."
    assert says_the_same(record(sentence, key="may/delete"), record(sentence))
    assert not says_the_same(record(sentence, key="may/delete"), record(sentence, key="may/read"))


def test_a_source_is_no_other_for_being_written_otherwise() -> None:
    assert not independent(said("web", "s1"), said(" WEB", "s2"))


async def test_a_yes_in_another_session_overturns_no_fact() -> None:
    memory = Memory(semantic="evidence")
    await memory.write(draft("no", key="may/delete", tier="semantic", provenance=CURATOR))
    await memory.write(draft("yes", key="may/delete", session="s1", provenance=WEB))
    await memory.write(draft("Yes.", session="s7", role="user", provenance=AGENT))
    await memory.sweep()
    assert await fact_at(memory, "may/delete") == "no"


async def test_what_is_not_trusted_at_all_is_no_evidence() -> None:
    memory = Memory(Trust(sources={"web*": 0.0}), semantic="evidence")
    one, other = (
        draft(CLAIM, tier="semantic", session="s", provenance=AGENT.model_copy(update={"source": source}))
        for source in ("web/1", "web/2")
    )
    await memory.write(one, other)
    await memory.sweep()
    assert await memory.where(one.id) == ("semantic", "pending")


async def test_evidence_that_was_enough_elsewhere_opens_no_closed_tier() -> None:
    memory = Memory(episodic="evidence", semantic="closed")
    one, other = (draft(CLAIM, tier="episodic", session=s, provenance=AGENT) for s in ("s1", "s2"))
    await memory.write(one, other)
    await memory.sweep()
    await memory.tiers["episodic"].touch([one.id], "2026-01-01T00:00:00.000Z")
    await memory.sweep()
    assert await memory.where(one.id) == ("episodic", "active")


async def test_what_its_group_brought_into_a_closed_tier_waits_for_somebody() -> None:
    memory = Memory(semantic="closed")
    await memory.write(draft("call", group="g", session="s", tier="semantic", provenance=CURATOR))
    one = draft(CLAIM, group="g", session="s1", provenance=AGENT)
    await memory.write(one)
    await memory.write(draft(CLAIM, session="s2", provenance=AGENT))
    for _ in range(3):
        await memory.sweep()
    assert await memory.where(one.id) == ("semantic", "pending")
    assert await memory.federation.approve([one.id], EVERYONE, "cleo") == {one.id: None}


async def test_one_of_a_group_is_not_promoted_for_others_that_may_not() -> None:
    memory = Memory(semantic="closed")
    good, bad = (
        draft(text, group="g", session="s", tier="episodic", provenance=origin)
        for text, origin in (("call", CURATOR), ("result", AGENT))
    )
    await memory.write(good, bad)
    with pytest.raises(A2MError, match=bad.id) as refused:
        await memory.federation.promote([good.id], "semantic", 0.0, EVERYONE)
    assert refused.value.code == Code.SCOPE_DENIED
    assert await memory.where(bad.id) == ("episodic", "active")


async def test_a_pending_fact_settles_nothing_by_what_it_says_it_came_from() -> None:
    memory = Memory(semantic="evidence")
    posing = AGENT.model_copy(update={"derived_from": ["other"]})
    await memory.write(draft("Atlantis", key="k", tier="semantic", session="s1", provenance=posing))
    await memory.write(draft("Berlin", id="other", key="k", session="s2", provenance=AGENT))
    await memory.sweep()
    assert await memory.where("other") == ("semantic", "pending")


async def test_what_a_router_that_died_left_in_two_tiers_is_approved_for_good() -> None:
    memory = Memory(episodic={"roles": {"tool": "evidence"}})
    one = draft("secret", session="s", role="tool", provenance=AGENT, status="pending")
    await memory.tiers["working"].write([one], EVERYONE)
    [original] = await memory.tiers["working"].read([one.id])
    await memory.tiers["episodic"].transfer([as_draft(original, "working", 0.0)])
    assert await memory.federation.approve([one.id], EVERYONE, "cleo") == {one.id: None}
    await memory.sweep()
    assert await memory.where(one.id) == ("episodic", "active")


async def test_an_approval_that_was_cut_short_does_not_undo_what_was_written_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory(semantic="evidence")
    claim = await contested(memory, "Rome")
    tier = memory.tiers["semantic"]
    judge, calls = tier.judge, list[int]()

    async def dies(judged: Sequence[Judged]) -> dict[str, bool]:
        calls.append(1)
        if len(calls) > 1:
            raise A2MError(Code.INTERNAL, "killed", {"retryable": True})
        return await judge(judged)

    with monkeypatch.context() as patched:
        patched.setattr(tier, "judge", dies)
        with pytest.raises(A2MError, match="killed"):
            await memory.federation.approve([claim.id], EVERYONE, "cleo")
    assert await fact_at(memory, "k") == "Rome"
    await memory.write(draft("Oslo", key="k", tier="semantic", provenance=CURATOR))
    await memory.sweep()
    assert await fact_at(memory, "k") == "Oslo"
    assert await memory.where(claim.id) == ("semantic", "superseded")


async def test_a_forget_waits_for_the_fact_that_an_approval_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has returned, nothing of what was forgotten is written."""
    memory = Memory(semantic="evidence")
    claim = await contested(memory, "Atlantis")
    tier = memory.tiers["semantic"]
    read, write = tier.read, tier.write
    forgets, ended = list[asyncio.Task[Any]](), list[bool]()

    async def reads(ids: Sequence[str]) -> list[Record]:
        found = await read(ids)
        if not forgets and [(r.provenance or Provenance()).approved for r in found] == ["cleo"]:
            forgets.append(asyncio.create_task(memory.federation.forget(Filter(ids=(claim.id,)))))
        return found

    async def writes(drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        await asyncio.wait(forgets, timeout=0.1)
        ended.append(forgets[0].done())
        return await write(drafts, scope)

    monkeypatch.setattr(tier, "read", reads)
    monkeypatch.setattr(tier, "write", writes)
    await memory.federation.approve([claim.id], EVERYONE, "cleo")
    await forgets[0]
    assert ended == [False]
    assert await tier.read([claim.id]) == []


async def test_two_approvals_at_once_write_one_fact() -> None:
    memory = Memory(semantic="evidence")
    claim = await contested(memory, "Rome")
    await asyncio.gather(*(memory.federation.approve([claim.id], EVERYONE, by) for by in ("cleo", "carl")))
    fact = await memory.fact("k")
    assert fact is not None
    assert (fact.content, fact.revision) == ("Rome", 1)


async def test_what_cannot_be_believed_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(working="evidence", semantic="evidence")
    await memory.write(draft("Berlin", key="k", tier="working", provenance=CURATOR))
    for session in ("s1", "s2"):
        await memory.write(draft("Rome", key="k", session=session, provenance=AGENT))
    one, other = (draft(CLAIM, tier="semantic", session=s, provenance=AGENT) for s in ("s1", "s2"))
    await memory.write(one, other)

    async def refuses(drafts: Sequence[Draft], scope: Scope) -> list[Written]:
        raise A2MError(Code.EMBEDDING_MISMATCH, "another width")

    monkeypatch.setattr(memory.tiers["working"], "write", refuses)
    await memory.sweep()
    assert await memory.where(one.id) == ("semantic", "active")
