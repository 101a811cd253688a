"""memory/timeline."""

from a2m_conformance.check import check
from a2m_conformance.outcome import expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json
from a2m_conformance.values import equal, ids, is_ascending


@check("TIMELINE-01")
async def times_ascend(probe: Probe) -> None:
    written: list[str] = []
    async for attempt in probe.tries():
        written += await probe.write(f"turn {attempt}")
        times = [record["created_at"] for record in await probe.mine()]
        expect(is_ascending(times), f"created_at does not ascend: {times}")
        if len(set(times)) >= 4:
            break
    equal(sorted(ids(await probe.mine())), sorted(written), "the ids in the timeline")


@check("TIMELINE-02")
async def the_limit_takes_the_newest(probe: Probe) -> None:
    for number in range(4):
        await probe.write(f"turn {number}")
    everything = await probe.mine()
    for limit in (1, 2, 3):
        equal(ids(await probe.mine(limit=limit)), ids(everything)[-limit:], f"the newest {limit}")
    equal(ids(await probe.mine(limit=100)), ids(everything), "with a limit above what matches")


@check("TIMELINE-03")
async def everything_comes(probe: Probe) -> None:
    size = min(60, probe.limits.get("max_records_per_call", 60))
    written = await probe.write(*(f"turn {number}" for number in range(size)))
    written += await probe.write(*(f"turn {number + size}" for number in range(size)))
    equal(sorted(ids(await probe.mine())), sorted(written), f"the ids of {2 * size} records")


@check("TIMELINE-04")
async def batches_keep_their_order(probe: Probe) -> None:
    names = [f"{probe.mark}-{name}" for name in "qzamxbyckd"]
    await probe.write(*(probe.record(f"turn {name}", id=name) for name in names))
    for _ in range(3):
        equal(ids(await probe.mine()), names, "the order of a batch")
    equal(ids(await probe.mine(limit=4)), names[-4:], "the newest of a batch")


@check("TIMELINE-05")
async def calls_keep_their_order(probe: Probe) -> None:
    names = [f"{probe.mark}-{name}" for name in "qzamxbyckd"]
    for name in names:
        await probe.write(probe.record(f"call {name}", id=name))
    for _ in range(3):
        equal(ids(await probe.mine()), names, "the order of ten quick writes")


@check("TIMELINE-06")
async def filters_come_before_the_limit(probe: Probe) -> None:
    tools = await probe.write(*(probe.record(f"tool {number}", role="tool") for number in range(3)))
    await probe.write(*(probe.record(f"user {number}", role="user") for number in range(12)))
    equal(sorted(ids(await probe.mine(where={"role": "tool"}))), sorted(tools), "the records of a role")
    found = await probe.mine(where={"role": "tool"}, limit=3)
    equal(sorted(ids(found)), sorted(tools), "the newest three of a role, behind twelve newer of another")


@check("TIMELINE-07")
async def parameters_have_types(probe: Probe) -> None:
    wrong: dict[str, tuple[Json, ...]] = {
        "limit": (-1, "3", 1.5, True, [3]),
        "where": ("role", ["role"], 5),
    }
    for name, values in wrong.items():
        for value in values:
            await probe.refused("timeline", {name: value}, -32602)


@check("TIMELINE-08")
async def the_forgotten_is_gone(probe: Probe) -> None:
    await probe.write(*(f"turn {number}" for number in range(5)))
    before = ids(await probe.mine())
    await probe.call("forget", ids=[before[1], before[3]])
    equal(ids(await probe.mine()), [before[0], before[2], before[4]], "the timeline after a forget")


@check("TIMELINE-09")
async def a_query_changes_nothing(probe: Probe) -> None:
    await probe.write("apples", "oranges", "pears")
    plain = ids(await probe.mine())
    equal(ids(await probe.mine(query="oranges", min_score=0.9)), plain, "a timeline asked with a query")
