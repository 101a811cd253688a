"""Tiers: where records live, and promotion."""

import itertools

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, part
from a2m_conformance.values import contents, equal, fields, ids, only
from a2m_conformance.wire import Refusal

_NOWHERE = "no-such-tier"


@check("TIERS-01")
async def records_name_their_tier(probe: Probe) -> None:
    word = probe.word()
    await probe.write(f"{word} somewhere")
    for record in [*await probe.mine(), *await probe.found(word)]:
        expect(record.get("tier") in probe.tiers, f"the tier of a record is {record.get('tier')!r}")


@check("TIERS-02")
async def placements_are_honoured(probe: Probe) -> None:
    for tier in await writable_tiers(probe):
        (identifier,) = await probe.write(probe.record(f"placed in {tier}", tier=tier))
        record = await probe.read(identifier)
        equal(part(record, "tier"), tier, "the tier of a placed record")


@check("TIERS-03")
async def unknown_tiers_of_reads(probe: Probe) -> None:
    for more in ({}, {"limit": -1}, {"where": 5}):
        await probe.refused("recall", {"query": probe.word(), "tier": _NOWHERE, **more}, -32002)
        await probe.refused("timeline", {"tier": _NOWHERE, **more}, -32002)


@check("TIERS-04")
async def unknown_tiers_of_writes(probe: Probe) -> None:
    written = await probe.write("stays")
    attempts: list[tuple[str, Json]] = [
        ("remember", {"records": [probe.record("good"), probe.record("lost", tier=_NOWHERE)]}),
        ("remember", {"records": [probe.record(tier=_NOWHERE)]}),
        ("forget", {"tier": _NOWHERE}),
        ("forget", {"ids": written, "tier": _NOWHERE}),
        ("forget", {"ids": "text", "tier": _NOWHERE}),
        ("promote", {"ids": written, "tier": _NOWHERE}),
        ("promote", {"ids": [], "tier": _NOWHERE}),
        ("promote", {"tier": _NOWHERE}),
    ]
    if probe.has("summarize"):
        attempts.append(("summarize", {"ids": written, "tier": _NOWHERE}))
        attempts.append(("summarize", {"ids": written, "into": _NOWHERE}))
    for method, params in attempts:
        await probe.refused(method, params, -32002)
    equal(ids(await probe.mine()), written, "what is there afterwards")


@check("TIERS-05")
async def tiers_limit_reads(probe: Probe) -> None:
    word = probe.word()
    tiers = await writable_tiers(probe)
    for tier in tiers:
        await probe.write(probe.record(f"{word} in {tier}", tier=tier))
    for tier in tiers:
        equal(contents(await probe.mine(tier=tier)), [f"{word} in {tier}"], f"the timeline of {tier}")
        equal(contents(await probe.found(word, tier=tier)), [f"{word} in {tier}"], f"recall in {tier}")


@check("TIERS-06")
async def recall_covers_every_tier(probe: Probe) -> None:
    tiers = await writable_tiers(probe)
    words = {tier: probe.word() for tier in tiers}
    for tier in tiers:
        await probe.write(probe.record(f"a note on {words[tier]}", tier=tier))
    for tier in tiers:
        found = await probe.found(words[tier])
        expect(found, f"a record in {tier} is not recalled by its word")
        equal(found[0].get("tier"), tier, "the tier of the first record")
    equal(len(await probe.found(limit=50)), len(tiers), "records of all tiers without a query")


@check("TIERS-07")
async def forget_selects_by_tier(probe: Probe) -> None:
    tiers = await writable_tiers(probe)
    for tier in tiers:
        await probe.write(probe.record(tier, tier=tier))
    result = await probe.call("forget", tier=tiers[0], where=probe.mine_where)
    equal(result.get("forgotten"), 1, f"forgotten in {tiers[0]}")
    equal(sorted(contents(await probe.mine())), sorted(tiers[1:]), "what is left")


@check("TIERS-08")
async def an_empty_tier_is_no_selector(probe: Probe) -> None:
    written = await probe.write("stays")
    for params in ({"tier": ""}, {"ids": written, "tier": ""}):
        await probe.refused("forget", params, -32602, -32002)
    equal(ids(await probe.mine()), written, "what is left")


@check("TIERS-09")
async def promote_moves(probe: Probe) -> None:
    for source, target in itertools.permutations(await writable_tiers(probe), 2):
        (identifier,) = await probe.write(probe.record(f"{source} to {target}", tier=source))
        result = await probe.call("promote", ids=[identifier], tier=target)
        equal(result.get("promoted"), 1, f"promoted from {source} to {target}")
        record = only(await probe.mine(where={"id": identifier}), "after a promotion")
        equal(record.get("tier"), target, "the tier afterwards")


@check("TIERS-10")
async def promote_counts_what_moves(probe: Probe) -> None:
    source, target = (await writable_tiers(probe))[:2]
    here, there = await probe.write(probe.record("here", tier=source), probe.record("there", tier=target))
    for given, wanted in (([], 0), ([probe.word()], 0), ([there], 0), ([probe.word(), there, here], 1)):
        result = await probe.call("promote", ids=given, tier=target)
        equal(result.get("promoted"), wanted, f"promoted of {given}")


@check("TIERS-11", phase="alone")
async def promote_changes_nothing_else(probe: Probe) -> None:
    tiers = await writable_tiers(probe)
    record = probe.record(
        "to be\n moved ", role="tool", group=probe.mark, metadata={"n": [1, None, 2.5]}, tier=tiers[0]
    )
    if probe.has("keys"):
        record["key"] = f"{probe.mark}/moved"
    if probe.has("external"):
        record |= {"uri": "urn:x:moved", "media_type": "text/x-moved"}
    if probe.has("embeddings") and probe.width is not None:
        record["embedding"] = probe.vector(3.0, -0.5, 0.25)
    (identifier,) = await probe.write(record)
    before = await probe.read(identifier, embeddings=True)
    for tier in tiers[1:]:
        result = await probe.call("promote", ids=[identifier], tier=tier)
        equal(result.get("promoted"), 1, f"promoted to {tier}")
        after = await probe.read(identifier, embeddings=True)
        equal(_of_the_table(after), {**_of_the_table(before), "tier": tier}, f"the record in {tier}")


@check("TIERS-12")
async def groups_move_whole(probe: Probe) -> None:
    tiers = await writable_tiers(probe)
    for number, (source, target) in enumerate(itertools.permutations(tiers, 2)):
        group = f"{probe.mark}-{number}"
        written = await probe.write(*(probe.record(f"{n}", group=group, tier=source) for n in range(3)))
        result = await probe.call("promote", ids=[written[number % 3]], tier=target)
        expect(result.get("promoted", 0) >= 1, "promoting a member of a group counted nothing")
        where = [record.get("tier") for record in await probe.mine(where={"group": group})]
        equal(where, [target] * 3, f"the tiers of a group of three, one of which went to {target}")


@check("TIERS-13")
async def promote_has_parameters(probe: Probe) -> None:
    (identifier,) = await probe.write("stays")
    tier = (await writable_tiers(probe))[-1]
    for params in (
        {"tier": tier},
        {"ids": [identifier]},
        {"ids": identifier, "tier": tier},
        {"ids": [5], "tier": tier},
        {},
    ):
        await probe.refused("promote", params, -32602)


@check("TIERS-14")
async def promote_adds_salience(probe: Probe) -> None:
    source, target = (await writable_tiers(probe))[:2]
    (identifier,) = await probe.write(probe.record("dear", salience=2.0, tier=source))
    await probe.call("promote", ids=[identifier], tier=target, salience=0.5)
    equal(part(await probe.read(identifier), "salience"), 2.5, "salience")


@check("TIERS-15")
async def a_retry_finds_what_moved(probe: Probe) -> None:
    for tier in (await writable_tiers(probe))[1:]:
        record = probe.record("once", id=f"{probe.mark}-{tier}")
        (identifier,) = await probe.write(record)
        await probe.call("promote", ids=[identifier], tier=tier)
        for again in (record, {**record, "content": "twice"}):
            equal(await probe.write(again), [identifier], "ids of the retry")
        kept = only(await probe.mine(where={"id": identifier}), "after a retry")
        equal(fields(kept, "content", "tier"), {"content": "once", "tier": tier}, "the record")


@check("TIERS-24")
async def forget_finds_what_moved(probe: Probe) -> None:
    word = probe.word()
    tiers = await writable_tiers(probe)
    written = await probe.write(*(probe.record(f"{word} {tier}", tier=tiers[0]) for tier in tiers))
    for identifier, tier in zip(written, tiers, strict=True):
        await probe.call("promote", ids=[identifier], tier=tier)
    result = await probe.call("forget", ids=written)
    equal(result.get("forgotten"), len(tiers), "forgotten, one of each tier")
    expect(not await probe.mine(), "a forgotten record is in the timeline")
    expect(not await probe.found(word), "a forgotten record is recalled")


async def writable_tiers(probe: Probe) -> list[str]:
    """The tiers that take a record of ours; NotApplicable with fewer than two."""
    found: list[str] = []
    for tier in probe.tiers:
        name = f"{probe.mark}-try-{tier}"
        record = {"id": name, "content": "is this tier writable?", "tier": tier}
        result = await probe.answer("remember", {"records": [record]})
        if isinstance(result, Refusal):
            expect(result.code == -32602, f"a write to the tier {tier} was refused with {result.code}")
        else:
            found.append(tier)
            await probe.call("forget", ids=[name])
    if len(found) < 2:
        raise NotApplicable("fewer than two tiers take writes")
    return found


def _of_the_table(record: Json) -> dict[str, Json]:
    names = ("id", "content", "created_at", "role", "metadata", "group", "tier", "session", "key", "revision")
    more = ("uri", "media_type", "embedding", "salience", "access_count", "accessed_at")
    return fields(record, *names, *more)
