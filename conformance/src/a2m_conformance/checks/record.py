"""What a record is, and that it comes back as it was written."""

import unicodedata

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, part
from a2m_conformance.tables import FIELDS, NULLABLE
from a2m_conformance.values import equal, ids, is_timestamp, only, same
from a2m_conformance.wire import Refusal

_CONTENTS = (
    "plain",
    "  white space\tat both ends \n",
    "\n\nlines\r\nof\rall kinds\n\n",
    "---\nname: front matter\n---\n# and a heading\n---\n",
    "日本語のテキスト, العربية, עברית, ไทย, 한국어",
    "🧠👩‍👩‍👧‍👦 é e\u0301 \u2028 \u2029 \ufeff \u00a0",
    "quotes ' \" ` \\ \\n %s {} $1 ; DROP TABLE records; -- <b>&amp;</b> \x1b \x7f",
    '{"json": [1, 2, null]}',
    "0",
    "null",
)

_METADATA: list[Json] = [
    {"a": {"b": {"c": [1, 2.5, "three", True, False, None, {}, []]}}},
    {"": "empty name", "with space": 1, "dotted.name": 2, "$name": 3, "ключ": "значение", "a'b\"c": 4},
    {"none": None, "false": False, "zero": 0, "empty": "", "nothing": [], "nobody": {}},
    {"text": " \n\t\u2028é🧠 ", "like": "2026-07-28", "also like": "1e3", "negative": -17},
    {"order": ["b", "a", "c", "a"], "mixed": [1, "1", True, None]},
]

_NUMBERS = (0.1, 1e-7, 1.5e300, -0.0, 2**53 + 1, 2**63, 2**64 + 1, -(2**63) - 1, 123456789012345.678)


@check("RECORD-01")
async def records_are_complete(probe: Probe) -> None:
    for record in await _some_records(probe):
        for field in ("id", "content", "created_at"):
            expect(isinstance(record.get(field), str), f"{field} is {record.get(field)!r}")
        expect(record["id"], "an id is empty")


@check("RECORD-02")
async def times_are_timestamps(probe: Probe) -> None:
    for record in await _some_records(probe):
        expect(is_timestamp(record["created_at"]), f"created_at is {record['created_at']!r}")


@check("RECORD-03")
async def content_is_verbatim(probe: Probe) -> None:
    written = await probe.write(*_CONTENTS)
    found = {record["id"]: record["content"] for record in await probe.mine()}
    for identifier, content in zip(written, _CONTENTS, strict=True):
        equal(found.get(identifier), content, "content")


@check("RECORD-04")
async def empty_content_is_content(probe: Probe) -> None:
    await probe.write("")
    equal(only(await probe.mine(), "an empty content").get("content"), "", "content")


@check("RECORD-05")
async def roles_are_free(probe: Probe) -> None:
    roles = ("user", "assistant", "tool", "system", "memory", "Über-Agent 7", "a/b c")
    written = await probe.write(*(probe.record("said", role=role) for role in roles), "by nobody")
    found = {record["id"]: record for record in await probe.mine()}
    for identifier, role in zip(written, roles, strict=False):
        equal(found[identifier].get("role"), role, "role")
    expect("role" not in found[written[-1]], "a role came back where none was given")


@check("RECORD-06")
async def metadata_is_exact(probe: Probe) -> None:
    for metadata in _METADATA:
        await _kept_or_refused(probe, metadata)


@check("RECORD-07")
async def numbers_in_metadata_are_exact(probe: Probe) -> None:
    for number in _NUMBERS:
        await _kept_or_refused(probe, {"number": number})


@check("RECORD-08")
async def empty_metadata_is_empty(probe: Probe) -> None:
    empty: dict[str, Json] = {"content": "empty", "metadata": {}, "id": f"{probe.mark}-empty"}
    absent: dict[str, Json] = {"content": "absent", "id": f"{probe.mark}-absent"}
    written = await probe.write(empty, absent)
    first, second = await probe.read(written[0]), await probe.read(written[1])
    expect(first and second, "a record without metadata was not kept")
    equal(part(first, "metadata"), {}, "metadata that was given empty")
    expect(part(second, "metadata", {}) is not None, "absent metadata came back as null")


@check("RECORD-09")
async def absent_values_are_left_out(probe: Probe) -> None:
    await probe.write({"content": "bare", "metadata": probe.mine_where})
    for record in [*await probe.mine(), *await probe.found()]:
        for field in FIELDS.keys() - NULLABLE:
            expect(record.get(field, 0) is not None, f"{field} is null")


@check("RECORD-10")
async def groups_are_kept(probe: Probe) -> None:
    name = f"group {probe.mark}/é"
    written = await probe.write(
        probe.record("call", group=name), probe.record("result", group=name), "no group"
    )
    found = {record["id"]: record.get("group") for record in await probe.mine()}
    equal([found.get(identifier) for identifier in written], [name, name, None], "groups")


@check("RECORD-11")
async def chosen_ids_are_verbatim(probe: Probe) -> None:
    ends = ("/../../etc/passwd", "%2F%00", "a b", "é🧠", "'\";--", "{}[]", ".git", "line\nend", "*?", ":#\\")
    chosen = [f"{probe.mark}{end}" for end in ends] + [f"../{probe.mark}", f".{probe.mark}"]
    written = await probe.write(*(probe.record(f"content {name}", id=name) for name in chosen))
    equal(written, chosen, "the ids that remember returned")
    equal(sorted(ids(await probe.mine())), sorted(chosen), "the ids in the timeline")


@check("RECORD-12")
async def similar_ids_are_different(probe: Probe) -> None:
    base = f"Caf\u00e9-{probe.mark}"
    chosen = [base, base.lower(), base.upper(), unicodedata.normalize("NFD", base), base + " ", " " + base]
    written = await probe.write(*(probe.record(f"number {n}", id=name) for n, name in enumerate(chosen)))
    equal(written, chosen, "the ids that remember returned")
    found = {record["id"]: record["content"] for record in await probe.mine()}
    equal(found, {name: f"number {n}" for n, name in enumerate(chosen)}, "the records")


@check("RECORD-13")
async def scores_are_of_recall(probe: Probe) -> None:
    for record in await _some_records(probe, "timeline"):
        expect("score" not in record, "a record of the timeline has a score")
    if probe.has("keys") and not probe.read_only:
        key = f"{probe.mark}/score"
        await probe.write(probe.record("at a key", key=key))
        record = (await probe.call("fetch", key=key))["record"]
        expect("score" not in record, "a fetched record has a score")


@check("RECORD-14")
async def times_stay(probe: Probe) -> None:
    written = await probe.write_each(["first", "second"])
    before = {record["id"]: record["created_at"] for record in await probe.mine()}
    await probe.found("first")
    after = {record["id"]: record["created_at"] for record in await probe.mine()}
    equal(after, before, "created_at after a recall")
    expect(before[written[0]] <= before[written[1]], "the second record is older than the first")


async def _some_records(probe: Probe, *methods: str) -> list[Json]:
    if not probe.read_only:
        await probe.write(probe.record(f"about {probe.mark}", role="user"), "something else")
    found: list[Json] = []
    for method in methods or ("timeline", "recall"):
        where = {} if probe.read_only else {"where": probe.mine_where}
        found += (await probe.call(method, limit=5, **where))["records"]
    if not found and probe.read_only:
        raise NotApplicable("the server holds no record")
    expect(found, "what was written is neither in the timeline nor recalled")
    return found


async def _kept_or_refused(probe: Probe, metadata: Json) -> None:
    identifier = f"{probe.mark}-{probe.word()}"
    record = {"id": identifier, "content": "with metadata", "metadata": metadata}
    result = await probe.answer("remember", {"records": [record]})
    if isinstance(result, Refusal):
        equal(result.code, -32602, "the refusal of metadata")
        return
    kept = await probe.read(identifier)
    await probe.call("forget", ids=[identifier])
    expect(kept, "a record with metadata was acknowledged but not kept")
    expect(
        same(part(kept, "metadata"), metadata),
        f"{metadata!r} came back as {part(kept, 'metadata')!r}",
    )
