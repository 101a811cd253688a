"""Keys: addresses of facts."""

import asyncio

from a2m_conformance.check import check
from a2m_conformance.checks.tiers import writable_tiers
from a2m_conformance.outcome import expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, part
from a2m_conformance.tables import WRONG_VALUES
from a2m_conformance.values import contents, equal, fields, ids, only


@check("KEYS-01")
async def keys_start_at_zero(probe: Probe) -> None:
    key = f"{probe.mark}/name"
    await probe.write(probe.record("Ada", key=key))
    record = only(await probe.mine(), "the timeline")
    equal(fields(record, "key", "revision"), {"key": key, "revision": 0}, "key and revision")


@check("KEYS-02")
async def keys_are_replaced(probe: Probe) -> None:
    key = f"{probe.mark}/name"
    first = await probe.write(probe.record("Ada", key=key))
    for revision, content in enumerate(("Grace", "Edsger"), start=1):
        equal(await probe.write(probe.record(content, key=key)), first, "the id of a replacing write")
        record = only(await probe.mine(), f"after {revision} replacements")
        wanted = {"id": first[0], "content": content, "key": key, "revision": revision}
        equal(fields(record, "id", "content", "key", "revision"), wanted, "the record")


@check("KEYS-03")
async def keys_are_fetched(probe: Probe) -> None:
    key = f"{probe.mark}/city"
    expect(await _fetch(probe, key) is None, "a key that was never written holds a record")
    (identifier,) = await probe.write(probe.record("Lund", key=key, role="user"))
    record = await _fetch(probe, key)
    wanted = {"id": identifier, "content": "Lund", "role": "user", "key": key, "revision": 0}
    equal(fields(record, *wanted), wanted, "the record at the key")
    for other in (probe.mark, f"{key}/x", key.upper(), key[:-1]):
        expect(await _fetch(probe, other) is None, f"{other!r} holds the record of {key!r}")


@check("KEYS-04")
async def fetch_needs_a_key(probe: Probe) -> None:
    for params in ({}, {"key": ""}, {"key": None}, {"key": 5}, {"key": ["a"]}):
        await probe.refused("fetch", params, -32602)


@check("KEYS-05")
async def prefixes_are_of_paths(probe: Probe) -> None:
    await _write_keys(probe, "a", "a/b", "a/b/c", "ab", "a-b", "b/a", "a b")
    await _beneath(probe, "a", "a", "a/b", "a/b/c")
    await _beneath(probe, "a/b", "a/b", "a/b/c")
    await _beneath(probe, "a/b/c", "a/b/c")
    await _beneath(probe, "b", "b/a")
    await _beneath(probe, "c")


@check("KEYS-06")
async def a_trailing_slash_is_nothing(probe: Probe) -> None:
    await _write_keys(probe, "a", "a/b", "ab")
    await _beneath(probe, "a/", "a", "a/b")
    await _beneath(probe, "a/b/", "a/b")


@check("KEYS-07")
async def prefixes_are_literal(probe: Probe) -> None:
    await _write_keys(probe, "a%/x", "a_/x", "a*/x", "ab/x", "A%/x", "a?/x", "[a]/x", "a\\/x")
    for prefix in ("a%", "a_", "a*", "ab", "A%", "a?", "[a]", "a\\"):
        await _beneath(probe, prefix, f"{prefix}/x")


@check("KEYS-08")
async def prefixes_limit_recall(probe: Probe) -> None:
    word = probe.word()
    outside = [probe.record(f"{word} {word}", key=f"{probe.mark}/out/{number}") for number in range(12)]
    inside = [
        probe.record(f"once {word} in more words", key=f"{probe.mark}/in/{number}") for number in range(3)
    ]
    await probe.write(*outside)
    written = await probe.write(*inside)
    for query in (word, None):
        found = await probe.found(query, key_prefix=f"{probe.mark}/in", limit=3)
        equal(sorted(ids(found)), sorted(written), "what is recalled beneath a prefix")


@check("KEYS-09")
async def prefixes_select_for_forget(probe: Probe) -> None:
    await _write_keys(probe, "a", "a/b", "ab")
    result = await probe.call("forget", key_prefix=f"{probe.mark}/a")
    equal(result.get("forgotten"), 2, "forgotten")
    equal(contents(await probe.mine()), ["ab"], "what is left")


@check("KEYS-10")
async def a_forgotten_key_is_free(probe: Probe) -> None:
    key = f"{probe.mark}/gone"
    written = await probe.write(probe.record("old", key=key))
    await probe.write(probe.record("newer", key=key))
    equal((await probe.call("forget", ids=written)).get("forgotten"), 1, "forgotten")
    expect(await _fetch(probe, key) is None, "a forgotten key holds a record")
    await probe.write(probe.record("new", key=key))
    equal(
        fields(await _fetch(probe, key), "content", "revision"),
        {"content": "new", "revision": 0},
        "the record",
    )


@check("KEYS-11")
async def a_key_twice_in_a_batch_is_one_record(probe: Probe) -> None:
    key = f"{probe.mark}/twice"
    written = await probe.write(probe.record("first", key=key), "between", probe.record("second", key=key))
    equal(written[0], written[2], "the two ids")
    equal(
        fields(await _fetch(probe, key), "content", "revision"),
        {"content": "second", "revision": 1},
        "the record",
    )
    equal(len(await probe.mine()), 2, "records")


@check("KEYS-12")
async def concurrent_writes_of_a_key_are_one(probe: Probe) -> None:
    key = f"{probe.mark}/race"
    answers = await asyncio.gather(*(probe.write(probe.record(f"writer {n}", key=key)) for n in range(8)))
    expect(len({answer[0] for answer in answers}) == 1, f"eight writers of one key got {answers}")
    equal(only(await probe.mine(), "after eight writers of one key").get("revision"), 7, "revision")


@check("KEYS-13")
async def keys_are_text(probe: Probe) -> None:
    for value in WRONG_VALUES["key"]:
        await probe.refused("remember", {"records": [probe.record("bad", key=value)]}, -32602)


@check("KEYS-14")
async def the_old_value_is_gone(probe: Probe) -> None:
    key, old, new = f"{probe.mark}/fact", probe.word(), probe.word()
    await probe.write(probe.record(f"it was {old}", key=key), "something else")
    await probe.write(probe.record(f"it is {new}", key=key))
    for record in [*await probe.mine(), *await probe.found(old), *await probe.found()]:
        expect(old not in record["content"], "the old value is still read")
    equal(contents(await probe.found(new, limit=1)), [f"it is {new}"], "what is recalled")
    result = await probe.call("forget", query=old)
    equal(result.get("forgotten"), 0, "forgotten by a word of the old value")


@check("KEYS-15")
async def a_key_is_replaced_where_it_lives(probe: Probe) -> None:
    first, *others = await writable_tiers(probe)
    for tier in others:
        key = f"{probe.mark}/{tier}"
        (identifier,) = await probe.write(probe.record("old", key=key, tier=first))
        result = await probe.call("promote", ids=[identifier], tier=tier)
        equal(result.get("promoted"), 1, "promoted")
        equal(await probe.write(probe.record("new", key=key)), [identifier], "the id of a replacing write")
        record = only(await probe.mine(key_prefix=key), "after a key was moved and replaced")
        equal(fields(record, "content", "revision"), {"content": "new", "revision": 1}, "the record")


@check("KEYS-16")
async def an_empty_prefix_is_no_selector(probe: Probe) -> None:
    written = await probe.write(probe.record("stays", key=f"{probe.mark}/stays"))
    for params in ({"key_prefix": ""}, {"ids": written, "key_prefix": ""}):
        await probe.refused("forget", params, -32602)
    equal(ids(await probe.mine()), written, "what is left")


@check("KEYS-17")
async def keys_are_verbatim(probe: Probe) -> None:
    ends = ["a b", "é", "e\u0301", "🧠", "../..", ".git", "'\"", "{x}", "A", "a", "%", "x//y", "x/y", " a"]
    keys = [f"{probe.mark}/{end}" for end in ends]
    await probe.write(*(probe.record(f"at {key}", key=key) for key in keys))
    equal(sorted(record.get("key") for record in await probe.mine()), sorted(keys), "the keys")
    for key in keys:
        equal(part(await _fetch(probe, key), "content"), f"at {key}", f"the content at {key!r}")


@check("KEYS-18")
async def null_is_no_key(probe: Probe) -> None:
    await probe.write(probe.record("one", key=None), probe.record("two", key=None), "three")
    equal(sorted(contents(await probe.mine())), ["one", "three", "two"], "records without a key")


@check("KEYS-19")
async def a_retry_does_not_revise(probe: Probe) -> None:
    record = probe.record("fact", key=f"{probe.mark}/fact", id=f"{probe.mark}-id")
    written = await probe.write(record)
    equal(await probe.write(record), written, "the id of a retry")
    kept = only(await probe.mine(), "after a retry")
    equal(fields(kept, "content", "revision"), {"content": "fact", "revision": 0}, "the record")


async def _fetch(probe: Probe, key: str) -> Json | None:
    result = await probe.call("fetch", key=key)
    expect("record" in result, "fetch returned no record, not even null")
    return result["record"]


async def _write_keys(probe: Probe, *keys: str) -> None:
    await probe.write(*(probe.record(key, key=f"{probe.mark}/{key}") for key in keys))


async def _beneath(probe: Probe, prefix: str, *wanted: str) -> None:
    found = contents((await probe.call("timeline", key_prefix=f"{probe.mark}/{prefix}"))["records"])
    expect(
        sorted(found) == sorted(wanted), f"beneath {prefix!r}: expected {sorted(wanted)}, got {sorted(found)}"
    )
