"""What a declared capability promises, and what an undeclared one must not do."""

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, part
from a2m_conformance.tables import FIELDS, METHODS, WRONG_VALUES
from a2m_conformance.values import contents, equal, ids
from a2m_conformance.wire import Refusal

_FILTERS: dict[str, tuple[str, Json]] = {
    "tier": ("tiers", "working"),
    "key_prefix": ("keys", "some/place"),
    "embedding": ("embeddings", [0.5, 0.25, 0.125, 1.0, 0.0, 0.0, 0.0, 0.0]),
}


@check("CAPABILITY-01")
async def undeclared_methods_are_not_supported(probe: Probe) -> None:
    undeclared = [method for method, capability in METHODS.items() if not probe.has(capability)]
    if not undeclared:
        raise NotApplicable("every capability is declared")
    for method in undeclared:
        envelope = await probe.wire.request(method, {})
        code = part(envelope.get("error"), "code")
        expect(code == -32003, f"{method} answered {code} instead of -32003")


@check("CAPABILITY-02")
async def unknown_methods_are_not_found(probe: Probe) -> None:
    for method in ("memory/remember_all", "memory/", "memory", "Memory/Recall", "recall", "tools/list"):
        envelope = await probe.wire.request(method, {})
        code = part(envelope.get("error"), "code")
        expect(code == -32601, f"{method} answered {code} instead of -32601")


@check("CAPABILITY-03")
async def unknown_parameters_of_reads_are_ignored(probe: Probe) -> None:
    strange: dict[str, Json] = {"x_colour": "blue", "x_deep": {"a": [1, None]}, "Limit": -1}
    await probe.call("describe", **strange)
    await probe.call("recall", query=probe.word(), limit=1, **strange)
    await probe.call("timeline", limit=1, **strange)


@check("CAPABILITY-04")
async def unknown_parameters_of_writes_are_ignored(probe: Probe) -> None:
    strange: dict[str, Json] = {"x_colour": "blue", "x_deep": {"a": [1, None]}}
    written = await probe.write("kept all the same", **strange)
    equal(ids(await probe.mine()), written, "the timeline after a write with unknown parameters")
    result = await probe.call("forget", ids=written, **strange)
    equal(result.get("forgotten"), 1, "forgotten")


@check("CAPABILITY-05")
async def unknown_fields_are_ignored(probe: Probe) -> None:
    strange: dict[str, Json] = {"x_colour": "blue", "x_deep": {"a": [1, None]}, "Content": 5, "": False}
    await probe.write(probe.record("kept", **strange))
    equal(contents(await probe.mine()), ["kept"], "the timeline after a write with unknown fields")


@check("CAPABILITY-06")
async def undeclared_fields_are_ignored(probe: Probe) -> None:
    undeclared = [name for name in WRONG_VALUES if not probe.has(FIELDS[name])]
    if not undeclared:
        raise NotApplicable("every capability with a field is declared")
    for name in undeclared:
        for number, value in enumerate(WRONG_VALUES[name]):
            (identifier,) = await probe.write(probe.record(f"{name} {number}", **{name: value}))
            record = await probe.read(identifier)
            expect(record, f"a record with the undeclared {name} {value!r} was not kept")
            expect(name not in (record or {}), f"the undeclared {name} came back")


@check("CAPABILITY-07")
async def a_placement_is_never_dropped(probe: Probe) -> None:
    if probe.has("tiers"):
        raise NotApplicable("tiers is declared")
    for tier in ("working", "nowhere"):
        records = [probe.record("first"), probe.record("placed", tier=tier)]
        await probe.refused("remember", {"records": records}, -32003)
    expect(not await probe.mine(), "something was written")


@check("CAPABILITY-08")
async def undeclared_filters_of_reads_are_refused(probe: Probe) -> None:
    filters = _undeclared(probe)
    for name, value in filters.items():
        await probe.refused("recall", {"query": probe.word(), name: value}, -32003)
        if name != "embedding":
            await probe.refused("timeline", {name: value}, -32003)


@check("CAPABILITY-09")
async def undeclared_filters_of_forget_are_refused(probe: Probe) -> None:
    filters = _undeclared(probe)
    filters.pop("embedding", None)
    (identifier,) = await probe.write("stays")
    for name, value in filters.items():
        await probe.refused("forget", {"ids": [identifier], name: value}, -32003)
    equal(ids(await probe.mine()), [identifier], "what is left")


@check("CAPABILITY-10")
async def a_prompt_is_ignored(probe: Probe) -> None:
    if probe.has("prompt"):
        raise NotApplicable("prompt is declared")
    for method in ("recall", "timeline"):
        for prompt in (True, {"method": "template", "style": "facts"}, {"method": "no such"}, "please"):
            result = await probe.call(method, limit=1, prompt=prompt)
            expect("prompt" not in result, f"{method} returned a prompt without declaring the capability")


@check("CAPABILITY-11")
async def owner_is_ignored_without_scopes(probe: Probe) -> None:
    if probe.has("scopes"):
        raise NotApplicable("scopes is declared")
    written = await probe.write("anybody's", owner=f"owner-{probe.mark}")
    equal(ids(await probe.mine(owner="somebody-else")), written, "the timeline of another owner")
    equal(ids(await probe.found(owner="somebody-else")), written, "a recall of another owner")
    await probe.call("describe", owner="somebody-else")
    result = await probe.call("forget", ids=written, owner="somebody-else")
    equal(result.get("forgotten"), 1, "forgotten by another owner")


@check("CAPABILITY-12")
async def writers_are_never_read_only(probe: Probe) -> None:
    written = await probe.write("written")
    attempts: list[tuple[str, Json]] = [
        ("remember", {}),
        ("remember", {"records": []}),
        ("remember", {"records": [{"id": probe.mark}]}),
        ("forget", {}),
        ("forget", {"ids": []}),
        ("forget", {"ids": [probe.word()]}),
        ("summarize", {"ids": []}),
        *(("remember", {"records": [probe.record("placed", tier=tier)]}) for tier in probe.tiers),
        *(("promote", {"ids": written, "tier": tier}) for tier in probe.tiers),
    ]
    for method, params in attempts:
        result = await probe.answer(method, params)
        code = result.code if isinstance(result, Refusal) else None
        expect(code != -32004, f"{method} {params!r} answered -32004, but the server takes writes")
    await probe.call("forget", where=probe.mine_where)


def _undeclared(probe: Probe) -> dict[str, Json]:
    found = {name: value for name, (capability, value) in _FILTERS.items() if not probe.has(capability)}
    if not found:
        raise NotApplicable("every capability with a filter is declared")
    return found
