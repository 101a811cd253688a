from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_protocol.types import Draft, Provenance, Record
from a2m_router.belief import Belief, Policy, Rule, Trust
from a2m_router.config import ConfigError, TierConfig, parse
from a2m_router.federation import Federation
from a2m_router.review import CHECKED, independent, witnesses
from a2m_router.tiers import Member
from a2m_server.contract import draft, name
from a2m_server.events import EventLog
from a2m_server.memory import MemoryTier
from a2m_server.values import EVERYONE, Filter, Page, Scope, Search, Written

CURATOR = Provenance(principal="cleo", authority="curator")
AGENT = Provenance(principal="bot", authority="agent")


def record(content: str = "hello", **fields: object) -> Record:
    return Record.model_validate(
        {
            "id": name("id"),
            "content": content,
            "created_at": "2026-01-01T00:00:00.000Z",
            "seq": 1,
            "etag": "e",
        }
        | fields
    )


def said(source: str | None = None, session: str | None = None, content: str = "It rains.") -> Record:
    return record(content, session=session, provenance=Provenance(source=source))


@pytest.mark.parametrize(
    ("policy", "one", "rule"),
    [
        ("open", record(), Rule.OPEN),
        ("evidence", record(), Rule.EVIDENCE),
        ("closed", record(), Rule.CLOSED),
        ("closed", record(provenance=AGENT), Rule.CLOSED),
        ("closed", record(provenance=CURATOR), Rule.OPEN),
        ("closed", record(provenance=Provenance(authority="operator")), Rule.OPEN),
        ("closed", record(provenance=Provenance(authority="router")), Rule.CLOSED),
        ("closed", record(provenance=Provenance(approved="cleo")), Rule.OPEN),
        ({"callers": {"curator": "evidence"}}, record(provenance=CURATOR), Rule.EVIDENCE),
        ({"default": "closed", "callers": {"agent": "open"}}, record(provenance=AGENT), Rule.OPEN),
        ({"roles": {"tool": "evidence"}}, record(role="tool"), Rule.EVIDENCE),
        ({"roles": {"tool": "evidence"}}, record(role="user"), Rule.OPEN),
        ({"roles": {"tool": "evidence"}}, record(role="tool", provenance=CURATOR), Rule.OPEN),
        ({"default": "closed", "roles": {"tool": "open"}}, record(role="tool"), Rule.CLOSED),
        ({"facts": "evidence"}, record(), Rule.OPEN),
        ({"facts": "evidence"}, record(key="k"), Rule.EVIDENCE),
    ],
)
def test_a_policy_is_by_who_wrote_and_what(policy: object, one: Record, rule: Rule) -> None:
    belief = Belief({"semantic": Policy.model_validate(policy)})
    assert belief.rule(one, "semantic") is rule
    assert belief.rule(one, "episodic") is Rule.OPEN


def test_the_strictest_of_several_tiers_counts() -> None:
    belief = Belief({"a": Policy(default=Rule.EVIDENCE), "b": Policy(default=Rule.CLOSED), "c": Policy()})
    assert belief.rule(record(), "a", "c") is Rule.EVIDENCE
    assert belief.rule(record(), "c", "b", "a") is Rule.CLOSED


@pytest.mark.parametrize(
    ("one", "trust"),
    [
        (record(), 0.5),
        (record(provenance=Provenance(principal="ingest")), 1.0),
        (record(provenance=Provenance(principal="ingest", source="crm")), 0.9),
        (record(provenance=Provenance(source="crm")), 0.5),
        (record(provenance=Provenance(principal="ingest", source="web/x")), 0.1),
        (record(provenance=Provenance(principal="ingest", source="web/wiki/x")), 0.6),
        (record(role="tool", provenance=Provenance(principal="ingest")), 0.2),
        (record(role="tool", provenance=Provenance(principal="ingest", source="web/x")), 0.1),
    ],
)
def test_the_least_of_what_names_a_record_is_its_trust(one: Record, trust: float) -> None:
    known = Trust(
        sources={"crm": 0.9, "web/*": 0.1, "web/wiki/*": 0.6},
        principals={"in*": 1.0},
        roles={"tool": 0.2},
    )
    assert known.of(one) == trust
    assert known.knows
    derived = (one.provenance or Provenance()).model_copy(update={"origins": ["web/x"], "source": None})
    assert known.of(one.model_copy(update={"provenance": derived})) == 0.1


def test_a_trusted_source_needs_no_evidence_but_closed_is_closed() -> None:
    trust = Trust(principals={"ingest": 0.8})
    one = record(provenance=Provenance(principal="ingest", authority="agent"))
    belief = Belief({"a": Policy(default=Rule.EVIDENCE), "b": Policy(default=Rule.CLOSED)}, trust)
    assert belief.rule(one, "a") is Rule.OPEN
    assert belief.rule(one, "b") is Rule.CLOSED
    assert belief.rule(record(provenance=AGENT), "a") is Rule.EVIDENCE


TIERS = """\
tiers:
  - {name: working, kind: working, url: "http://127.0.0.1:1", capacity: 2, spill_to: episodic}
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  - {name: episodic, kind: episodic, url: 'http://b', policy: closed}\n", "closed to some"),
        (
            "  - {name: episodic, kind: episodic, url: 'http://b', policy: {roles: {tool: closed}}}\n",
            "closed to some",
        ),
        ("  - {name: episodic, kind: episodic, url: 'http://b', policy: maybe}\n", "evidence"),
        (
            "  - {name: episodic, kind: episodic, url: 'http://b', policy: {callers: {king: open}}}\n",
            "callers",
        ),
        ("  - {name: episodic, kind: episodic, url: 'http://b'}\ntrust: {believed: 2}\n", "believed"),
        ("  - {name: episodic, kind: episodic, url: 'http://b'}\ntrust: {sources: {crm: 1}}\n", "principals"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(TIERS + text, "federation.yaml")


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (said("a", "s1"), said("b", "s1"), True),
        (said("a", "s1"), said("a", "s2"), False),
        (said("a", "s1"), said(None, "s1"), False),
        (said("a", "s1"), said(None, "s2"), True),
        (said(None, "s1"), said(None, "s2"), True),
        (said(None, "s1"), said(None, None), False),
        (said(None, None), said(None, None), False),
    ],
)
def test_independent_is_another_source_or_else_another_session(
    one: Record, other: Record, apart: bool
) -> None:
    assert independent(one, other) is apart
    assert independent(other, one) is apart
    assert not independent(one, one)


def test_what_was_derived_from_a_record_is_no_evidence_of_it() -> None:
    one = said(None, "s1")
    copy = record("It rains.", session="s2", provenance=Provenance(derived_from=[one.id]))
    other = record("It rains.", session="s3", provenance=Provenance(ancestors=[one.id]))
    third = record("It rains.", session="s4", provenance=Provenance(origins=["web"]))
    for a, b in ((one, copy), (copy, one), (copy, other), (third, said("web", "s5"))):
        assert not independent(a, b)


def test_witnesses_are_independent_of_each_other_and_say_the_same() -> None:
    one = said("a", "s1")
    others = [
        said("b", "s1", "it RAINS"),
        said("b", "s2"),
        said("c", "s3", "It does not rain."),
        said("d", "s4", "Rains it?"),
    ]
    assert witnesses(one, others) == 1
    assert witnesses(one, [*others, said("e", "s5")]) == 2
    # What a session says without a source it may have from what it was told there.
    assert witnesses(said("web", "s1"), [said("web", "s2"), said(None, "s1")]) == 0
    assert witnesses(said("web", "s2"), [said("web", "s1"), said(None, "s1")]) == 0
    assert witnesses(said("web", "s1"), [said("web", "s2"), said(None, "s3")]) == 1


CHAIN = {"working": "working", "episodic": "episodic", "semantic": "semantic", "procedural": "procedural"}

Make = Callable[..., "Memory"]


class Memory:
    """A federation over tiers in memory."""

    def __init__(self, trust: Trust | None = None, **policies: object) -> None:
        self.tiers = {tier: MemoryTier(tier, kind) for tier, kind in CHAIN.items()}
        self.events = EventLog()
        members = [
            Member(
                TierConfig.model_validate(
                    {
                        "name": tier,
                        "kind": kind,
                        "url": "http://127.0.0.1:1",
                        "capacity": 2 if kind == "working" else 0,
                        "per_session": kind == "working",
                        "spill_to": "episodic" if kind == "working" else None,
                        "promote_to": "semantic" if kind == "episodic" else None,
                        "promote_after": 1 if kind == "episodic" else None,
                        "policy": policies.get(tier, "open"),
                    }
                ),
                self.tiers[tier],
            )
            for tier, kind in CHAIN.items()
        ]
        self.federation = Federation("a2m", members, self.events, interval=3_600, trust=trust)

    async def write(self, *drafts: Draft) -> list[Written]:
        return await self.federation.write(drafts, EVERYONE)

    async def found(self, text: str, scope: Scope = EVERYONE) -> list[str]:
        return [
            r.content for r in (await self.federation.search(Search(Filter(scope), 10, text=text))).records
        ]

    async def fact(self, key: str) -> Record | None:
        return (await self.federation.fetch(key, EVERYONE, vectors=False)).record

    async def pending(self) -> list[Record]:
        page = Page(Filter(statuses=("pending",)))
        return (await self.federation.timeline(page)).records

    async def where(self, record_id: str) -> tuple[str, str]:
        found = [(t, r.status) for t, tier in self.tiers.items() for r in await tier.read([record_id])]
        [only] = found
        return only

    async def sweep(self) -> None:
        await self.federation.consolidate()


async def test_under_evidence_a_new_fact_stays_out_of_recall_until_a_curator_approves() -> None:
    memory = Memory(semantic="evidence")
    one = draft(
        "Ann works at Evil Corp.", key="ann/employer", tier="semantic", session="s1", provenance=AGENT
    )
    [wrote] = await memory.write(one)
    assert (wrote.id, wrote.outcome, wrote.pending) == (one.id, "created", True)
    assert await memory.found("Ann works") == []
    assert await memory.fact("ann/employer") is None
    assert [r.id for r in await memory.pending()] == [one.id]
    assert await memory.federation.approve([one.id, "none"], EVERYONE, "cleo") == {one.id: None}
    assert await memory.found("Ann works") == [one.content]
    fact = await memory.fact("ann/employer")
    assert fact is not None
    assert fact.provenance == AGENT.model_copy(update={"approved": "cleo"})
    assert await memory.federation.approve([one.id], EVERYONE, "cleo") == {}


async def test_a_curator_is_believed_and_a_trusted_source_too() -> None:
    memory = Memory(Trust(principals={"ingest": 1.0}), semantic="evidence")
    ingest = Provenance(principal="ingest", authority="agent")
    for origin in (CURATOR, ingest):
        [wrote] = await memory.write(draft("sound", key=name("k"), tier="semantic", provenance=origin))
        assert not wrote.pending
    assert len(await memory.found("sound")) == 2


async def test_what_is_closed_takes_nothing_and_the_whole_batch_is_refused() -> None:
    memory = Memory(procedural="closed")
    good, bad = draft("turn", session="s"), draft("rm -rf", key="deploy", tier="procedural", provenance=AGENT)
    with pytest.raises(A2MError, match="procedural") as refused:
        await memory.write(good, bad)
    assert refused.value.code == Code.SCOPE_DENIED
    assert await memory.found("turn rm") == []
    [wrote] = await memory.write(bad.model_copy(update={"provenance": CURATOR}))
    assert wrote.outcome == "created"


async def test_a_contradiction_is_kept_beside_the_fact_and_takes_its_place_once_approved() -> None:
    memory = Memory(semantic="evidence")
    [home] = await memory.write(draft("Berlin", key="ann/home", tier="semantic", provenance=CURATOR))
    lie = draft("Atlantis", key="ann/home", session="s9", provenance=AGENT, metadata={"n": 1})
    [wrote] = await memory.write(lie)
    assert (wrote.id, wrote.outcome, wrote.pending) == (lie.id, "created", True)
    fact = await memory.fact("ann/home")
    assert fact is not None
    assert (fact.content, fact.revision) == ("Berlin", 0)
    [beside] = await memory.pending()
    assert (beside.id, beside.key) == (lie.id, None)
    assert beside.provenance is not None
    assert beside.provenance.contests == "ann/home"
    [again] = await memory.write(lie)
    assert (again.id, again.outcome) == (lie.id, "existing")
    assert len(await memory.pending()) == 1
    assert await memory.federation.approve([lie.id], EVERYONE, "cleo") == {lie.id: None}
    fact = await memory.fact("ann/home")
    assert fact is not None
    assert (fact.id, fact.content, fact.revision, fact.metadata) == (home.id, "Atlantis", 1, {"n": 1})
    assert fact.provenance is not None
    assert (fact.provenance.approved, fact.provenance.contests) == ("cleo", None)
    assert fact.provenance.derived_from == [lie.id]
    assert await memory.where(lie.id) == ("semantic", "superseded")


async def test_two_contradictions_of_one_batch_do_not_rewrite_each_other() -> None:
    memory = Memory(semantic="evidence")
    first, second = (
        draft(text, key="k", tier="semantic", provenance=AGENT, session="s") for text in ("one", "two")
    )
    wrote = await memory.write(first, second)
    assert [(w.id, w.outcome) for w in wrote] == [(first.id, "created"), (second.id, "created")]
    assert {r.content: r.key for r in await memory.pending()} == {"one": "k", "two": None}


async def test_a_fact_is_protected_wherever_it_is_written_to() -> None:
    """Whoever leaves the tier out meets the policy of where the fact lives, and of where it would land."""
    memory = Memory(semantic="evidence", working={"facts": "evidence"})
    [new] = await memory.write(draft("v0", key="new", session="s", provenance=AGENT))
    assert new.pending
    await memory.write(draft("v0", key="k", tier="semantic", provenance=CURATOR))
    for tier in (None, "working", "episodic", "semantic"):
        [wrote] = await memory.write(draft("lie", key="k", tier=tier, provenance=AGENT))
        assert wrote.pending
    fact = await memory.fact("k")
    assert fact is not None
    assert (fact.content, fact.revision) == ("v0", 0)


async def test_independent_evidence_corroborates_and_the_same_source_again_does_not() -> None:
    memory = Memory(semantic="evidence")
    text = "Ann lives in Rome."

    def claim(source: str | None, session: str, **fields: object) -> Draft:
        origin = AGENT.model_copy(update={"source": source})
        return draft(text, session=session, provenance=origin, **fields)

    first = claim("web", "s1", key="ann/home", tier="semantic")
    await memory.write(first)
    await memory.write(claim("web", "s2", key="ann/home", tier="semantic"), claim(None, "s1", role="user"))
    await memory.sweep()
    assert await memory.fact("ann/home") is None
    await memory.write(claim(None, "s3", role="user"))
    await memory.sweep()
    fact = await memory.fact("ann/home")
    assert fact is not None
    assert (fact.id, fact.status) == (first.id, "active")
    assert fact.provenance is not None
    assert fact.provenance.approved == "evidence"
    await memory.sweep()
    assert await memory.pending() == [], "what said the same is settled"


async def test_as_many_witnesses_are_needed_as_are_set() -> None:
    memory = Memory(Trust(corroboration=2), semantic="evidence")
    for at in range(3):
        await memory.sweep()
        assert await memory.found("whale") == []
        await memory.write(draft("A whale is a mammal.", tier="semantic", session=f"s{at}", provenance=AGENT))
    await memory.sweep()
    assert await memory.found("whale") != []


async def test_a_contradiction_that_others_confirm_takes_the_place_of_the_fact() -> None:
    memory = Memory(semantic="evidence")
    await memory.write(draft("Berlin", key="ann/home", tier="semantic", provenance=CURATOR))
    for session in ("s1", "s2"):
        await memory.write(draft("Rome", key="ann/home", session=session, provenance=AGENT))
    await memory.sweep()
    fact = await memory.fact("ann/home")
    assert fact is not None
    assert (fact.content, fact.revision) == ("Rome", 1)
    await memory.sweep()
    assert await memory.pending() == []
    assert [r.content for r in [await memory.fact("ann/home")] if r] == ["Rome"]


async def test_other_owners_words_are_no_evidence() -> None:
    memory = Memory(semantic="evidence")
    for owner, session in (("ann", "s1"), ("bob", "s2")):
        await memory.write(
            draft("Ann owes Bob.", tier="semantic", session=session, owner=owner, provenance=AGENT)
        )
    await memory.sweep()
    assert len(await memory.pending()) == 2


async def test_an_episode_is_not_promoted_without_evidence_and_stays_recallable() -> None:
    memory = Memory(semantic="evidence")
    one = draft("The password is swordfish.", session="s1", tier="episodic", provenance=AGENT)
    await memory.write(one)
    await memory.tiers["episodic"].touch([one.id], "2026-01-01T00:00:00.000Z")
    await memory.sweep()
    assert await memory.where(one.id) == ("episodic", "active")
    assert await memory.found("password") == [one.content]
    with pytest.raises(A2MError, match="does not let in") as refused:
        await memory.federation.promote([one.id], "semantic", 0.0, EVERYONE)
    assert refused.value.code == Code.SCOPE_DENIED
    await memory.write(draft("The password is swordfish.", session="s2", tier="episodic", provenance=AGENT))
    await memory.sweep()
    assert await memory.where(one.id) == ("semantic", "active")
    [held] = await memory.tiers["semantic"].read([one.id])
    assert held.provenance is not None
    assert held.provenance.approved == "evidence"


async def test_a_group_is_promoted_only_when_all_of_it_is_believed() -> None:
    memory = Memory(semantic="evidence")
    good = draft("call", group="g", session="s", tier="episodic", provenance=CURATOR)
    bad = draft("result", group="g", session="s", tier="episodic", provenance=AGENT)
    await memory.write(good, bad)
    await memory.tiers["episodic"].touch([good.id], "2026-01-01T00:00:00.000Z")
    await memory.sweep()
    assert await memory.where(good.id) == ("episodic", "active")


async def test_what_has_to_leave_working_enters_a_tier_that_asks_for_evidence_as_pending() -> None:
    memory = Memory(episodic={"roles": {"tool": "evidence"}})
    turns = [
        draft(f"secret {role}", session="s", role=role, provenance=AGENT) for role in ("user", "tool", "user")
    ]
    await memory.write(*turns)
    await memory.federation.close_session("s", EVERYONE)
    assert [await memory.where(t.id) for t in turns] == [
        ("episodic", "active"),
        ("episodic", "pending"),
        ("episodic", "active"),
    ]
    assert await memory.found("secret tool") == ["secret user", "secret user"]
    selected = Filter(where=Filter().where)
    whole = (await memory.federation.timeline(Page(selected))).records
    assert [r.content for r in whole] == [t.content for t in turns]


async def test_rejecting_forgets_what_is_pending_alone() -> None:
    memory = Memory(semantic="evidence")
    bad, fine = draft("bad", tier="semantic", provenance=AGENT), draft("fine", session="s")
    await memory.write(bad, fine)
    gone = await memory.federation.forget(Filter(ids=(bad.id, fine.id), statuses=("pending",)))
    assert gone.ids == [bad.id]
    assert await memory.where(fine.id) == ("working", "active")
    [refused] = await memory.federation.transfer([bad.model_copy(update={"seq": 1, "moves": 1})])
    assert refused.outcome == "refused"


async def test_an_approval_counts_for_what_the_caller_may_write_alone() -> None:
    memory = Memory(semantic="evidence")
    one = draft("x", tier="semantic", owner="bob", provenance=AGENT)
    await memory.write(one)
    assert await memory.federation.approve([one.id], Scope.of("ann"), "ann") == {}
    assert await memory.where(one.id) == ("semantic", "pending")


@pytest.mark.parametrize("step", [1, 2])
async def test_an_approval_that_was_cut_short_is_ended_by_the_next_sweep(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    memory = Memory(semantic="evidence")
    await memory.write(draft("Berlin", key="k", tier="semantic", provenance=CURATOR))
    claim = draft("Rome", key="k", session="s1", provenance=AGENT)
    await memory.write(claim)
    tier, method = memory.tiers["semantic"], ("write", "judge")[step - 1]
    works, calls = getattr(tier, method), list[int]()

    async def dies(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) >= step:
            raise A2MError(Code.INTERNAL, "killed", {"retryable": True})
        return await works(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(tier, method, dies)
        with pytest.raises(A2MError, match="killed"):
            await memory.federation.approve([claim.id], EVERYONE, "cleo")
    assert await memory.where(claim.id) == ("semantic", "pending")
    await memory.sweep()
    await memory.sweep()
    assert await memory.where(claim.id) == ("semantic", "superseded")
    fact = await memory.fact("k")
    assert fact is not None
    assert fact.provenance is not None
    assert (fact.content, fact.revision, fact.provenance.approved) == ("Rome", 1, "cleo")


async def test_what_was_forgotten_before_it_was_approved_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory(semantic="evidence")
    await memory.write(draft("Berlin", key="k", tier="semantic", provenance=CURATOR))
    claim = draft("Atlantis", key="k", session="s1", provenance=AGENT)
    await memory.write(claim)
    tier = memory.tiers["semantic"]
    read = tier.read

    async def late(ids: Sequence[str]) -> list[Record]:
        found = await read(ids)
        await tier.forget(Filter(ids=(claim.id,)))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(tier, "read", late)
        assert await memory.federation.approve([claim.id], EVERYONE, "cleo") == {}
    await memory.sweep()
    fact = await memory.fact("k")
    assert fact is not None
    assert fact.content == "Berlin"


async def test_each_sweep_looks_at_others_of_many_pending_records() -> None:
    memory = Memory(semantic="evidence")
    many = [draft(f"claim {n}", tier="semantic", session="s", provenance=AGENT) for n in range(CHECKED + 5)]
    await memory.write(*many)
    await memory.write(draft(many[-1].content, session="t", provenance=AGENT))
    await memory.sweep()
    assert await memory.where(many[-1].id) == ("semantic", "pending")
    await memory.sweep()
    assert await memory.where(many[-1].id) == ("semantic", "active")


async def test_a_doubted_source_ranks_behind_one_that_is_trusted() -> None:
    trust = Trust(principals={"good": 1.0}, sources={"web/*": 0.0})
    memory = Memory(trust)
    text = "The answer is {}."
    for at, origin in enumerate(
        (Provenance(principal="good"), Provenance(principal="good", source="web/x"), Provenance())
    ):
        await memory.write(draft(text.format("abc"[at]), session="s", tier="episodic", provenance=origin))
    asked = Search(Filter(), 10, text="the answer", explain=True)
    found = await memory.federation.search(asked)
    assert [r.content for r in found.records] == [text.format(letter) for letter in "acb"]
    assert [found.explained[r.id]["trust"] for r in found.records] == [1.0, 0.5, 0.0]
