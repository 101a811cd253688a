"""memory/remember."""

import asyncio

from a2m_conformance.check import check
from a2m_conformance.outcome import expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json
from a2m_conformance.values import contents, equal, fields, ids, is_text, only


@check("REMEMBER-01")
async def ids_are_in_order(probe: Probe) -> None:
    chosen = [f"{probe.mark}-{name}" for name in ("z", "a", "m", "b")]
    records = [probe.record(name, id=name) for name in chosen]
    records.insert(2, probe.record("assigned"))
    written = await probe.write(*records)
    equal(written[:2] + written[3:], chosen, "the ids of records that chose theirs")
    found = {record["id"]: record["content"] for record in await probe.mine()}
    equal(found.get(written[2]), "assigned", "the content at the id that was assigned")


@check("REMEMBER-02")
async def assigned_ids_are_unique(probe: Probe) -> None:
    batches = await asyncio.gather(*(probe.write(*["the same"] * 5) for _ in range(4)))
    assigned = [identifier for batch in batches for identifier in batch]
    expect(all(map(is_text, assigned)), "an id is empty or no text")
    expect(len(set(assigned)) == 20, f"20 records got {len(set(assigned))} ids")
    equal(len(await probe.mine()), 20, "records kept of 20 alike")


@check("REMEMBER-03")
async def ids_may_be_chosen(probe: Probe) -> None:
    name = f"chosen-{probe.mark}"
    equal(await probe.write(probe.record("mine", id=name)), [name], "ids")
    equal(ids(await probe.mine()), [name], "the timeline")


@check("REMEMBER-04")
async def an_existing_id_changes_nothing(probe: Probe) -> None:
    name = f"once-{probe.mark}"
    await probe.write(probe.record("first", id=name, role="user", metadata={"n": 1}))
    kept = ("id", "content", "created_at", "role", "metadata", "group")
    before = fields(only(await probe.mine(), "after the first write"), *kept)
    again = probe.record("second", id=name, role="tool", metadata={"n": 2}, group=probe.mark)
    equal(await probe.write(again), [name], "ids of the second write")
    equal(fields(only(await probe.mine(), "after the second write"), *kept), before, "the record")


@check("REMEMBER-05")
async def an_id_twice_in_a_batch_is_one_record(probe: Probe) -> None:
    name, other = f"twice-{probe.mark}", f"other-{probe.mark}"
    written = await probe.write(
        probe.record("first", id=name), probe.record("between", id=other), probe.record("second", id=name)
    )
    equal(written, [name, other, name], "ids")
    found = sorted(contents(await probe.mine()))
    equal(found, ["between", "first"], "the contents kept")


@check("REMEMBER-06")
async def a_batch_may_be_retried(probe: Probe) -> None:
    records = [probe.record(f"turn {n}", id=f"{probe.mark}-{n}") for n in range(6)]
    first = await probe.write(*records[:4])
    before = await probe.mine()
    again = await probe.write(*records)
    equal(again[:4], first, "the ids of the retry")
    kept = ("id", "content", "created_at")
    after = [fields(record, *kept) for record in await probe.mine()]
    wanted = {record["id"]: fields(record, *kept) for record in before}
    equal(len(after), 6, "records after a retry that added two")
    for record in after:
        equal(record, wanted.get(record["id"], record), "a record after the retry")


@check("REMEMBER-07")
async def concurrent_writes_of_an_id_are_one(probe: Probe) -> None:
    name = f"race-{probe.mark}"
    records = [probe.record(f"writer {n}", id=name) for n in range(8)]
    answers = await asyncio.gather(*(probe.write(record) for record in records))
    equal(answers, [[name]] * 8, "the ids of eight writers")
    only(await probe.mine(), "after eight writers of one id")


@check("REMEMBER-08")
async def records_are_required(probe: Probe) -> None:
    attempts: list[Json] = [
        {},
        {"records": []},
        {"records": None},
        {"records": probe.record("bare")},
        {"records": "text"},
        {"records": ["text"]},
        {"records": [None]},
        {"records": [[]]},
    ]
    for params in attempts:
        await probe.refused("remember", params, -32602)


@check("REMEMBER-09")
async def content_is_required(probe: Probe) -> None:
    await probe.refused("remember", {"records": [probe.record(role="user")]}, -32602)
    await probe.refused("remember", {"records": [{}]}, -32602)


@check("REMEMBER-10")
async def core_fields_have_types(probe: Probe) -> None:
    wrong: list[tuple[str, Json]] = [
        ("content", 5),
        ("content", None),
        ("content", ["text"]),
        ("id", 5),
        ("id", {}),
        ("role", 5),
        ("role", ["user"]),
        ("metadata", []),
        ("metadata", "text"),
        ("metadata", 1),
        ("group", 5),
        ("group", {}),
    ]
    for field, value in wrong:
        record = {**probe.record("content"), field: value}
        await probe.refused("remember", {"records": [record]}, -32602)


@check("REMEMBER-11")
async def an_id_is_not_empty(probe: Probe) -> None:
    await probe.refused("remember", {"records": [probe.record("nameless", id="")]}, -32602)


@check("REMEMBER-12")
async def a_batch_is_all_or_nothing(probe: Probe) -> None:
    good = [probe.record(f"good {n}", id=f"{probe.mark}-{n}") for n in range(3)]
    for bad in ({"role": "no content"}, probe.record("bad", role=5), "no record"):
        for batch in ([*good, bad], [bad, *good], [good[0], bad, good[1]]):
            await probe.refused("remember", {"records": batch}, -32602)
    expect(not await probe.mine(), "a refused batch left something")


@check("REMEMBER-13")
async def writes_are_read_at_once(probe: Probe) -> None:
    for number in range(3):
        word = probe.word()
        (identifier,) = await probe.write(f"note {number} about {word}")
        expect(identifier in ids(await probe.mine()), "the timeline does not show what was acknowledged")
        expect(identifier in ids(await probe.found(word)), "recall does not find what was acknowledged")


@check("REMEMBER-14")
async def concurrent_writes_are_kept(probe: Probe) -> None:
    answers = await asyncio.gather(*(probe.write(f"writer {n}") for n in range(16)))
    written = sorted(identifier for answer in answers for identifier in answer)
    equal(sorted(ids(await probe.mine())), written, "the ids kept of 16 concurrent writes")


@check("REMEMBER-15")
async def a_big_batch_is_in_order(probe: Probe) -> None:
    size = min(100, probe.limits.get("max_records_per_call", 100))
    wanted = [f"{probe.mark}-{number}" for number in range(size)]
    written = await probe.write(*(probe.record(f"number {name}", id=name) for name in wanted))
    equal(written, wanted, "ids")
    equal(sorted(ids(await probe.mine())), sorted(wanted), "the ids kept")
