"""memory/forget."""

from a2m_conformance.check import check
from a2m_conformance.outcome import expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json
from a2m_conformance.values import contents, equal, ids


@check("FORGET-01")
async def a_selector_is_required(probe: Probe) -> None:
    written = await probe.write("stays")
    for params in ({}, {"limit": 1}, {"x_unknown": 1}):
        await probe.refused("forget", params, -32602)
    if not probe.has("scopes"):
        await probe.refused("forget", {"owner": f"nobody-{probe.mark}"}, -32602)
    equal(ids(await probe.mine()), written, "what is left")


@check("FORGET-02")
async def ids_go(probe: Probe) -> None:
    word = probe.word()
    written = await probe.write(*(f"{word} {number}" for number in range(4)))
    equal((await probe.call("forget", ids=written[:2])).get("forgotten"), 2, "forgotten")
    equal(sorted(ids(await probe.mine())), sorted(written[2:]), "the timeline")
    equal(sorted(ids(await probe.found(word))), sorted(written[2:]), "what is recalled")


@check("FORGET-03")
async def unknown_ids_are_not_counted(probe: Probe) -> None:
    (identifier,) = await probe.write("here")
    equal((await probe.call("forget", ids=[probe.word()])).get("forgotten"), 0, "forgotten of an unknown id")
    ids_given = [probe.word(), identifier]
    equal((await probe.call("forget", ids=ids_given)).get("forgotten"), 1, "forgotten beside an unknown id")
    equal((await probe.call("forget", ids=[identifier])).get("forgotten"), 0, "forgotten a second time")


@check("FORGET-04")
async def an_id_twice_is_counted_once(probe: Probe) -> None:
    (identifier,) = await probe.write("here")
    equal((await probe.call("forget", ids=[identifier] * 3)).get("forgotten"), 1, "forgotten")


@check("FORGET-05")
async def matches_go(probe: Probe) -> None:
    users = await probe.write(*(probe.record(f"user {n}", role="user") for n in range(3)))
    tools = await probe.write(*(probe.record(f"tool {n}", role="tool") for n in range(2)))
    result = await probe.call("forget", where={**probe.mine_where, "role": "tool"})
    equal(result.get("forgotten"), len(tools), "forgotten")
    equal(sorted(ids(await probe.mine())), sorted(users), "what is left")


@check("FORGET-06")
async def a_query_needs_all_its_words(probe: Probe) -> None:
    first, second = probe.word(), probe.word()
    written = await probe.write(f"{first} alone", f"{second} alone", f"{second}, then {first}", "neither")
    result = await probe.call("forget", query=f"{first} {second}")
    equal(result.get("forgotten"), 1, "forgotten by two words that one record holds")
    left = [written[0], written[1], written[3]]
    equal(sorted(ids(await probe.mine())), sorted(left), "what is left")
    nothing = await probe.call("forget", query=f"{first} {probe.word()}")
    equal(nothing.get("forgotten"), 0, "forgotten by a word that no record holds")


@check("FORGET-07")
async def a_query_without_words_selects_nothing(probe: Probe) -> None:
    written = await probe.write("!? stays")
    for query in ("!?", "..."):
        result = await probe.call("forget", query=query, where=probe.mine_where)
        equal(result.get("forgotten"), 0, f"forgotten by the query {query!r}")
    equal(ids(await probe.mine()), written, "what is left")


@check("FORGET-08")
async def selectors_all_apply(probe: Probe) -> None:
    word = probe.word()
    written = await probe.write(
        probe.record(f"{word} one", role="user"),
        probe.record(f"{word} two", role="tool"),
        probe.record("three", role="tool"),
    )
    by_both = await probe.call("forget", ids=written[:1], where={"role": "tool"})
    equal(by_both.get("forgotten"), 0, "forgotten by an id and a where that exclude each other")
    by_three = await probe.call("forget", ids=written, query=word, where={"role": "tool"})
    equal(by_three.get("forgotten"), 1, "forgotten by ids, a query and a where that meet in one record")
    equal(sorted(ids(await probe.mine())), sorted([written[0], written[2]]), "what is left")


@check("FORGET-09")
async def no_ids_select_nothing(probe: Probe) -> None:
    word = probe.word()
    written = await probe.write(f"{word} stays")
    for more in ({}, {"where": probe.mine_where}, {"query": word}):
        result = await probe.call("forget", ids=[], **more)
        equal(result.get("forgotten"), 0, "forgotten by no ids")
    equal(ids(await probe.mine()), written, "what is left")


@check("FORGET-10")
async def empty_selectors_are_refused(probe: Probe) -> None:
    written = await probe.write("stays")
    attempts: list[Json] = [
        {"query": ""},
        {"where": {}},
        {"ids": written, "query": ""},
        {"ids": written, "where": {}},
    ]
    for empty in attempts:
        await probe.refused("forget", empty, -32602)
    equal(ids(await probe.mine()), written, "what is left")


@check("FORGET-11")
async def selectors_have_types(probe: Probe) -> None:
    (identifier,) = await probe.write("stays")
    wrong: list[Json] = [
        {"ids": identifier},
        {"ids": [5]},
        {"ids": {"id": identifier}},
        {"query": 5},
        {"query": [probe.mark]},
        {"where": "role"},
        {"where": [probe.mark]},
    ]
    for params in wrong:
        await probe.refused("forget", params, -32602)
    equal(ids(await probe.mine()), [identifier], "what is left")


@check("FORGET-12")
async def a_forgotten_id_is_free(probe: Probe) -> None:
    name = f"again-{probe.mark}"
    for content in ("first", "second", "third"):
        equal(await probe.write(probe.record(content, id=name)), [name], "ids")
        equal(contents(await probe.mine()), [content], f"the timeline after the {content} writing")
        equal((await probe.call("forget", ids=[name])).get("forgotten"), 1, "forgotten")
    expect(not await probe.mine(), "the id is still there")


@check("FORGET-13")
async def many_go_at_once(probe: Probe) -> None:
    size = min(60, probe.limits.get("max_records_per_call", 60))
    for _ in range(2):
        await probe.write(*(f"turn {number}" for number in range(size)))
    result = await probe.call("forget", where=probe.mine_where)
    expect(not await probe.mine(), "some of what matches is still there")
    equal(result.get("forgotten"), 2 * size, "forgotten")
