"""Consolidation: spilling under pressure and earned promotion."""

from a2m_conformance.check import check
from a2m_conformance.checks.tiers import writable_tiers
from a2m_conformance.outcome import CheckFailure, NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_object, part
from a2m_conformance.values import equal, ids, is_count

_MOST_WE_WRITE = 500


@check("TIERS-16", phase="alone")
async def consolidate_reports(probe: Probe) -> None:
    result = await probe.call("consolidate")
    for name in ("moved", "promoted", "dropped", "summarized"):
        expect(is_count(result.get(name)), f"{name} is {result.get(name)!r}")
    counts = result.get("counts")
    expect(is_object(counts), f"counts is {counts!r}")
    equal(sorted(counts), sorted(probe.tiers), "the tiers that are counted")
    expect(all(map(is_count, counts.values())), f"counts are {counts}")


@check("TIERS-17", phase="alone")
async def consolidate_counts_as_describe(probe: Probe) -> None:
    await probe.write("one", "two")
    counted, shown = None, None
    async for _ in probe.tries():
        counted = (await probe.call("consolidate"))["counts"]
        shown = {tier["name"]: tier["count"] for tier in (await probe.call("describe"))["tiers"]}
        if counted == shown:
            return
    raise CheckFailure(f"consolidate counts {counted}, describe {shown}")


@check("TIERS-18", phase="alone")
async def consolidate_keeps_records(probe: Probe) -> None:
    for tier in await writable_tiers(probe):
        await probe.write(probe.record(f"in {tier}", tier=tier))
    before = ids(await probe.mine())
    for _ in range(2):
        await probe.call("consolidate")
        equal(ids(await probe.mine()), before, "the timeline after a consolidation")


@check("TIERS-19", phase="alone")
async def a_full_session_spills(probe: Probe) -> None:
    tier = _pressed(probe)
    size = tier["capacity"] + 5
    written = await _fill(probe, tier["name"], size)
    count = None
    async for _ in probe.tries():
        await probe.call("consolidate")
        equal(ids(await probe.mine()), written, f"the timeline of {size} records while they spill")
        count = len(await probe.mine(tier=tier["name"]))
        if count <= tier["capacity"]:
            break
    expect(
        (count or 0) <= tier["capacity"], f"{count} records in {tier['name']}, it holds {tier['capacity']}"
    )


@check("TIERS-20", phase="alone")
async def a_quiet_session_stays(probe: Probe) -> None:
    tier = _pressed(probe)
    if not tier.get("per_session"):
        raise NotApplicable("no capacity per session")
    quiet = await probe.write(
        *(probe.record(f"quiet {n}", tier=tier["name"], session=f"quiet-{probe.mark}") for n in range(3))
    )
    await _fill(probe, tier["name"], tier["capacity"] + 5)
    await probe.call("consolidate")
    found = await probe.mine(tier=tier["name"], where={"session": f"quiet-{probe.mark}"})
    equal(ids(found), quiet, "the quiet session's records in working")


@check("TIERS-21")
async def spilling_is_a_chain(probe: Probe) -> None:
    tiers = {tier["name"]: tier for tier in probe.about["tiers"]}
    for name, tier in tiers.items():
        seen = [name]
        while (target := tier.get("spill_to")) is not None:
            expect(
                tiers[target].get("kind") != "procedural",
                f"{tier['name']} spills into the procedural {target}",
            )
            expect(target not in seen, f"spilling goes in a circle: {[*seen, target]}")
            seen.append(target)
            tier = tiers[target]


@check("TIERS-22", phase="alone")
async def groups_spill_whole(probe: Probe) -> None:
    tier = _pressed(probe)
    size = tier["capacity"] + 4
    records = [
        probe.record(f"turn {n}", tier=tier["name"], group=f"{probe.mark}-{n // 3}") for n in range(size)
    ]
    await probe.write(*records)
    await probe.call("consolidate")
    homes: dict[str, set[str]] = {}
    for record in await probe.mine():
        homes.setdefault(record["group"], set()).add(record["tier"])
    for group, names in homes.items():
        expect(len(names) == 1, f"the group {group} is spread over {sorted(names)}")


@check("TIERS-23", phase="alone")
async def recalls_earn_promotion(probe: Probe) -> None:
    earning = [tier for tier in probe.about["tiers"] if tier.get("promote_after") and tier.get("promote_to")]
    if not earning:
        raise NotApplicable("no tier promotes what is recalled")
    for tier in earning:
        word = probe.word()
        (identifier,) = await probe.write(probe.record(f"often asked: {word}", tier=tier["name"]))
        for _ in range(tier["promote_after"]):
            equal(ids(await probe.found(word)), [identifier], "what is recalled")
        home = None
        async for _ in probe.tries():
            await probe.call("consolidate")
            home = part(await probe.read(identifier), "tier")
            if home != tier["name"]:
                break
        expect(home != tier["name"], f"still in {home} after {tier['promote_after']} recalls")


def _pressed(probe: Probe) -> Json:
    for tier in probe.about["tiers"]:
        if tier.get("spill_to") and 0 < tier.get("capacity", 0) <= _MOST_WE_WRITE:
            return tier
    raise NotApplicable("no tier with a capacity that can be filled and a tier below")


async def _fill(probe: Probe, tier: str, size: int) -> list[str]:
    written: list[str] = []
    step = min(50, probe.limits.get("max_records_per_call", 50))
    for start in range(0, size, step):
        batch = range(start, min(start + step, size))
        written += await probe.write(*(probe.record(f"turn {number}", tier=tier) for number in batch))
    return written
