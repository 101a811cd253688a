"""Salience and the counting of accesses."""

from a2m_conformance.check import check
from a2m_conformance.outcome import CheckFailure, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, part
from a2m_conformance.tables import WRONG_VALUES
from a2m_conformance.values import equal, is_timestamp, only


@check("SALIENCE-01")
async def one_is_the_default(probe: Probe) -> None:
    await probe.write("ordinary")
    equal(only(await probe.mine(), "the timeline").get("salience"), 1.0, "salience")


@check("SALIENCE-02")
async def salience_is_kept(probe: Probe) -> None:
    for salience in (0, 0.25, 7, -1.5):
        (identifier,) = await probe.write(probe.record("weighed", salience=salience))
        equal(await _salience(probe, identifier), salience, "salience")


@check("SALIENCE-03")
async def reinforce_adds(probe: Probe) -> None:
    first, second = await probe.write(probe.record("a", salience=1.0), probe.record("b", salience=2.0))
    wanted = 1.0
    for amount in (0.5, 2, -1.25, 0.125, 0):
        result = await probe.call("reinforce", ids=[first], amount=amount)
        equal(result.get("reinforced"), 1, "reinforced")
        wanted += amount
        equal(await _salience(probe, first), wanted, f"salience after {amount} was added")
    equal(await _salience(probe, second), 2.0, "salience of another record")
    equal(
        (await probe.call("reinforce", ids=[first, second], amount=1)).get("reinforced"),
        2,
        "reinforced of two",
    )


@check("SALIENCE-04")
async def unknown_ids_are_not_counted(probe: Probe) -> None:
    (identifier,) = await probe.write(probe.record("here", salience=1.0))
    equal(
        (await probe.call("reinforce", ids=[probe.word()], amount=1)).get("reinforced"), 0, "of an unknown id"
    )
    result = await probe.call("reinforce", ids=[probe.word(), identifier], amount=1)
    equal(result.get("reinforced"), 1, "reinforced beside an unknown id")
    equal(await _salience(probe, identifier), 2.0, "salience")


@check("SALIENCE-05")
async def reinforce_has_an_amount_of_its_own(probe: Probe) -> None:
    (identifier,) = await probe.write(probe.record("here", salience=1.0))
    await probe.call("reinforce", ids=[identifier])
    salience = await _salience(probe, identifier)
    expect(salience > 1.0, f"the salience went from 1.0 to {salience}")


@check("SALIENCE-06")
async def reinforce_has_parameters(probe: Probe) -> None:
    (identifier,) = await probe.write(probe.record("here", salience=1.0))
    wrong: list[Json] = [
        {},
        {"amount": 1},
        {"ids": identifier},
        {"ids": [5]},
        {"ids": [identifier], "amount": "1"},
        {"ids": [identifier], "amount": True},
    ]
    for params in wrong:
        await probe.refused("reinforce", params, -32602)
    equal(await _salience(probe, identifier), 1.0, "salience")


@check("SALIENCE-07")
async def salience_is_a_number(probe: Probe) -> None:
    for value in WRONG_VALUES["salience"]:
        await probe.refused("remember", {"records": [probe.record("bad", salience=value)]}, -32602)


@check("SALIENCE-08", phase="alone")
async def recalls_are_counted(probe: Probe) -> None:
    word = probe.word()
    asked, other = await probe.write(f"{word} asked", "not asked")
    for wanted in (1, 2, 3):
        await probe.found(word, limit=1)
        await _counts(probe, asked, wanted)
    accessed = part(await probe.read(asked), "accessed_at")
    expect(is_timestamp(accessed), f"accessed_at is {accessed!r}")
    expect(not part(await probe.read(other), "access_count"), "a record that was not recalled has a count")


@check("SALIENCE-09", phase="alone")
async def the_timeline_counts_nothing(probe: Probe) -> None:
    word = probe.word()
    (identifier,) = await probe.write(f"{word} read")
    for _ in range(5):
        await probe.mine()
    await probe.found(word)
    await _counts(probe, identifier, 1)


async def _salience(probe: Probe, identifier: str) -> Json:
    return part(await probe.read(identifier), "salience")


async def _counts(probe: Probe, identifier: str, wanted: int) -> None:
    count = None
    async for _ in probe.tries():
        count = part(await probe.read(identifier), "access_count")
        if count == wanted:
            return
    raise CheckFailure(f"after {wanted} recalls access_count is {count!r}")
