"""memory/describe and the limits that it declares."""

from a2m_conformance.check import check
from a2m_conformance.outcome import CheckFailure, NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import is_list, part
from a2m_conformance.tables import CAPABILITIES, KINDS, METHODS
from a2m_conformance.values import equal, is_count

_MOST_WE_SEND = 20_000
_LONGEST_WE_SEND = 4_000_000


@check("DESCRIBE-01")
async def it_says_what_it_is(probe: Probe) -> None:
    about = await probe.call("describe")
    equal(about.get("protocol"), "a2m/0.1", "protocol")
    expect(isinstance(about.get("name"), str) and about["name"], "name is no text")
    for field in ("capabilities", "methods"):
        value = about.get(field)
        expect(
            is_list(value) and all(isinstance(item, str) for item in value),
            f"{field} is no list of text",
        )


@check("DESCRIBE-02")
async def capabilities_are_of_the_table(probe: Probe) -> None:
    declared = (await probe.call("describe"))["capabilities"]
    expect("core" in declared, "core is not declared")
    expect(len(set(declared)) == len(declared), f"a capability is declared twice: {declared}")
    strangers = set(declared) - CAPABILITIES
    expect(not strangers, f"no capabilities of A2M: {sorted(strangers)}")


@check("DESCRIBE-03")
async def methods_of_capabilities_are_listed(probe: Probe) -> None:
    listed = set(probe.about["methods"])
    for method, capability in METHODS.items():
        if not probe.has(capability) or method.startswith("memory/events/"):
            continue
        if probe.read_only and method in ("memory/remember", "memory/forget", "memory/summarize"):
            continue
        expect(method in listed, f"{capability} is declared but {method} is not listed")


@check("DESCRIBE-04")
async def methods_of_other_capabilities_are_not(probe: Probe) -> None:
    for method in probe.about["methods"]:
        capability = METHODS.get(method, "core")
        expect(probe.has(capability), f"{method} is listed, its capability {capability} is not declared")


@check("DESCRIBE-05")
async def listed_methods_are_served(probe: Probe) -> None:
    for method in sorted(set(probe.about["methods"]) & METHODS.keys()):
        if method == "memory/events/subscribe":
            continue
        envelope = await probe.wire.request(method, {})
        code = part(envelope.get("error"), "code")
        expect(code not in (-32601, -32003), f"{method} is listed, but answers {code}")


@check("DESCRIBE-06")
async def extensions_are_names(probe: Probe) -> None:
    known = METHODS.keys()
    own = [name for name in probe.about["methods"] if name not in known]
    extensions = probe.about.get("extensions")
    if extensions is None:
        expect(not own, f"methods outside the table without extensions: {own}")
        raise NotApplicable("no extensions")
    expect(
        is_list(extensions) and all(isinstance(item, str) for item in extensions),
        "extensions is no list of names",
    )


@check("DESCRIBE-07")
async def our_version_is_served(probe: Probe) -> None:
    equal((await probe.call("describe", protocol="a2m/0.1")).get("protocol"), "a2m/0.1", "protocol")


@check("DESCRIBE-08")
async def other_versions_are_refused(probe: Probe) -> None:
    for version in ("a2m/0.2", "a2m/0.0", "a2m/1.0", "a2m/1.1"):
        await probe.refused("describe", {"protocol": version}, -32007)


@check("DESCRIBE-09")
async def limits_are_positive(probe: Probe) -> None:
    names = ("max_records_per_call", "max_recall_limit", "max_content_length")
    limits = {name: probe.limits[name] for name in names if name in probe.limits}
    if not limits:
        raise NotApplicable("no limits declared")
    for name, value in limits.items():
        expect(is_count(value) and value > 0, f"{name} is {value!r}")


@check("DESCRIBE-10")
async def tiers_are_named_and_counted(probe: Probe) -> None:
    tiers = probe.about.get("tiers")
    if tiers is None:
        expect(not probe.has("tiers"), "tiers is declared but describe shows none")
        raise NotApplicable("no tiers shown")
    names = [tier.get("name") for tier in tiers]
    expect(all(isinstance(name, str) and name for name in names), f"a tier without a name: {names}")
    expect(len(set(names)) == len(names), f"a name stands for two tiers: {names}")
    for tier in tiers:
        expect(is_count(tier.get("count")), f"the count of {tier['name']} is {tier.get('count')!r}")


@check("DESCRIBE-11")
async def tiers_describe_themselves(probe: Probe) -> None:
    if not probe.tiers:
        raise NotApplicable("no tiers shown")
    for tier in probe.about["tiers"]:
        name = tier["name"]
        expect(tier.get("kind", "working") in KINDS, f"{name} is of the kind {tier.get('kind')!r}")
        expect(is_count(tier.get("capacity", 0)), f"the capacity of {name} is {tier.get('capacity')!r}")
        for field in ("spill_to", "promote_to"):
            target = tier.get(field)
            expect(target is None or target in probe.tiers, f"{field} of {name} is {target!r}")


@check("DESCRIBE-12")
async def too_many_records_are_refused(probe: Probe) -> None:
    most = probe.limits.get("max_records_per_call")
    if not most or most > _MOST_WE_SEND:
        raise NotApplicable("no limit of records that can be tried")
    records = [probe.record(f"{probe.mark} {number}") for number in range(most + 1)]
    await probe.refused("remember", {"records": records}, -32602, -32006)
    expect(not await probe.mine(), "records of a refused call were kept")


@check("DESCRIBE-13")
async def too_high_a_limit_is_refused(probe: Probe) -> None:
    most = probe.limits.get("max_recall_limit")
    if not most:
        raise NotApplicable("no max_recall_limit declared")
    await probe.refused("recall", {"query": probe.word(), "limit": most + 1}, -32602, -32006)
    await probe.call("recall", query=probe.word(), limit=most)


@check("DESCRIBE-14")
async def too_long_a_content_is_refused(probe: Probe) -> None:
    content = _content(probe) + "é"
    await probe.refused("remember", {"records": [probe.record(content)]}, -32602, -32006)
    expect(not await probe.mine(), "a record of a refused call was kept")


@check("DESCRIBE-15")
async def the_longest_content_is_kept(probe: Probe) -> None:
    content = _content(probe)
    (identifier,) = await probe.write(content)
    record = await probe.read(identifier)
    expect(record and record.get("content") == content, "the longest content came back changed or not at all")


@check("DESCRIBE-16", phase="alone")
async def counts_follow(probe: Probe) -> None:
    if not probe.tiers:
        raise NotApplicable("no tiers shown")
    before = await _count(probe)
    ids = await probe.write("one", "two", "three")
    await _settles_at(probe, before + 3, "after three records were written")
    await probe.call("forget", ids=ids[:2])
    await _settles_at(probe, before + 1, "after two of them were forgotten")


async def _settles_at(probe: Probe, wanted: int, when: str) -> None:
    count = None
    async for _ in probe.tries():
        count = await _count(probe)
        if count == wanted:
            return
    raise CheckFailure(f"{when} the counts sum up to {count}, {wanted} was expected")


async def _count(probe: Probe) -> int:
    return sum(tier["count"] for tier in (await probe.call("describe"))["tiers"])


def _content(probe: Probe) -> str:
    longest = probe.limits.get("max_content_length")
    if not longest or longest > _LONGEST_WE_SEND:
        raise NotApplicable("no max_content_length that can be tried")
    return ("mémoire à long terme, " * (longest // 20 + 1))[: longest - 1] + "é"
