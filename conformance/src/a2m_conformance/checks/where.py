"""The where filter."""

from a2m_conformance.check import check
from a2m_conformance.outcome import expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json
from a2m_conformance.values import contents, equal


@check("WHERE-01")
async def fields_are_compared(probe: Probe) -> None:
    await probe.write(
        probe.record("a", role="user", group="one"),
        probe.record("b", role="tool", group="one"),
        probe.record("c", role="user", group="two"),
    )
    await _selects(probe, {"role": "user"}, "a", "c")
    await _selects(probe, {"group": "one"}, "a", "b")
    await _selects(probe, {"content": "b"}, "b")


@check("WHERE-02")
async def metadata_is_compared(probe: Probe) -> None:
    await _write(probe, a={"topic": "cats"}, b={"topic": "dogs"}, c={"n": 7}, d={"flag": True})
    await _selects(probe, {"topic": "cats"}, "a")
    await _selects(probe, {"n": 7}, "c")
    await _selects(probe, {"flag": True}, "d")


@check("WHERE-03")
async def conditions_all_apply(probe: Probe) -> None:
    await _write(probe, a={"x": 1, "y": 1}, b={"x": 1, "y": 2}, c={"x": 2, "y": 1})
    await _selects(probe, {"x": 1, "y": 1}, "a")
    await _selects(probe, {"x": 1, "y": [1, 2]}, "a", "b")
    await _selects(probe, {"x": 2, "y": 2})


@check("WHERE-04")
async def arrays_are_any_of(probe: Probe) -> None:
    await _write(probe, a={"x": "one"}, b={"x": "two"}, c={"x": 3}, d={"x": True})
    await _selects(probe, {"x": ["one", "two"]}, "a", "b")
    await _selects(probe, {"x": ["two", 3, "no such"]}, "b", "c")
    await _selects(probe, {"x": [True]}, "d")


@check("WHERE-05")
async def null_is_absent(probe: Probe) -> None:
    await _write(probe, a={"x": 1}, b={"y": 1}, c={"x": 2})
    await probe.write(probe.record("d", role="user", metadata={"x": 1}))
    await _selects(probe, {"x": None}, "b")
    await _selects(probe, {"x": [None, 2]}, "b", "c")
    await _selects(probe, {"role": None}, "a", "b", "c")


@check("WHERE-06")
async def types_are_not_mixed(probe: Probe) -> None:
    await _write(
        probe,
        one={"x": 1},
        true={"x": True},
        zero={"x": 0},
        false={"x": False},
        text={"x": "1"},
        word={"x": "true"},
    )
    await _selects(probe, {"x": 1}, "one")
    await _selects(probe, {"x": True}, "true")
    await _selects(probe, {"x": 0}, "zero")
    await _selects(probe, {"x": False}, "false")
    await _selects(probe, {"x": "1"}, "text")
    await _selects(probe, {"x": "true"}, "word")
    await _selects(probe, {"x": [1, False]}, "one", "false")


@check("WHERE-07")
async def unknown_operators_are_refused(probe: Probe) -> None:
    for method in ("recall", "timeline"):
        for value in ({"$no_such": 1}, {"no such operator": 1}, {"nested": {"a": 1}}):
            await probe.refused(method, {"where": {"role": value}}, -32602)
            await probe.refused(method, {"where": {"some_metadata": value}}, -32602)


@check("WHERE-08")
async def fields_go_before_metadata(probe: Probe) -> None:
    await probe.write(
        probe.record("a", role="user", metadata={"role": "tool"}),
        probe.record("b", role="tool", metadata={"role": "user"}),
    )
    await _selects(probe, {"role": "user"}, "a")
    await _selects(probe, {"role": "tool"}, "b")


@check("WHERE-09")
async def no_match_is_no_error(probe: Probe) -> None:
    for method in ("recall", "timeline"):
        for where in ({"id": probe.word()}, {probe.word(): 1}, {"role": probe.word()}):
            result = await probe.call(method, where=where)
            equal(result.get("records"), [], f"{method} of what matches nothing")


@check("WHERE-10")
async def values_are_literal(probe: Probe) -> None:
    names = [
        "abc",
        "ABC",
        "ab",
        "abcd",
        "a%c",
        "a_c",
        "a*c",
        "a.c",
        "a c",
        " abc",
        "a'c",
        'a"c',
        "a\\c",
        "é",
        "",
    ]
    await _write(probe, **{f"x{number}": {"x": name} for number, name in enumerate(names)})
    for number, name in enumerate(names):
        await _selects(probe, {"x": name}, f"x{number}")


@check("WHERE-11")
async def names_are_literal(probe: Probe) -> None:
    names = [
        "a.b",
        "a b",
        "$a",
        "a'b",
        'a"b',
        "a\\b",
        "a[0]",
        "ключ",
        "a/b",
        "a:b",
        "{a}",
        "A",
        "a",
        "%",
        "🧠",
    ]
    await _write(probe, **{f"x{number}": {name: "here"} for number, name in enumerate(names)})
    await _write(probe, deep={"a": {"b": "here"}})
    for number, name in enumerate(names):
        await _selects(probe, {name: "here"}, f"x{number}")


@check("WHERE-12")
async def an_empty_array_matches_nothing(probe: Probe) -> None:
    await _write(probe, a={"x": 1}, b={})
    await _selects(probe, {"x": []})
    await _selects(probe, {"role": []})


@check("WHERE-13")
async def ids_are_compared(probe: Probe) -> None:
    first, second, _ = await probe.write("a", "b", "c")
    await _selects(probe, {"id": first}, "a")
    await _selects(probe, {"id": [first, second, probe.word()]}, "a", "b")


@check("WHERE-14")
async def methods_agree(probe: Probe) -> None:
    await _write(probe, a={"x": 1, "y": "p"}, b={"x": True, "y": "p"}, c={"y": "q"}, d={"x": 2, "y": "q"})
    for where in ({"x": [1, None]}, {"y": "p", "x": True}, {"y": ["q", "r"], "x": None}):
        timeline = sorted(contents(await probe.mine(where=where)))
        recalled = sorted(contents(await probe.found(where=where)))
        equal(recalled, timeline, f"recall where {where}, against the timeline")
    kept = sorted(contents(await probe.mine(where={"x": [1, 2]})))
    result = await probe.call("forget", where={**probe.mine_where, "x": [True, None]})
    equal(result.get("forgotten"), 2, "forgotten")
    equal(sorted(contents(await probe.mine())), kept, "what is left")


@check("WHERE-15")
async def numbers_are_numbers(probe: Probe) -> None:
    numbers = [0, -1, 1.5, 0.1, 1e21, 2**31, 2**53, 1e-9]
    await _write(probe, **{f"x{place}": {"x": number} for place, number in enumerate(numbers)})
    for place, number in enumerate(numbers):
        await _selects(probe, {"x": number}, f"x{place}")


async def _write(probe: Probe, **metadata: Json) -> None:
    await probe.write(*(probe.record(name, metadata=value) for name, value in metadata.items()))


async def _selects(probe: Probe, where: dict[str, Json], *wanted: str) -> None:
    found = contents(await probe.mine(where=where))
    expect(
        sorted(found) == sorted(wanted), f"where {where}: {sorted(wanted)} was expected, got {sorted(found)}"
    )
