"""What is in the keys, and what is not left in them."""

import re
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings, strategies
from redis.asyncio import Redis

from a2m_protocol.types import Draft
from a2m_server.contract import HOSTILE, draft, name, within
from a2m_server.values import EVERYONE, Filter, Named, Page, Scope, Search
from a2m_working.rows import draft_arguments, row_of
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as opened:
        yield opened


async def keys_of(client: Redis, prefix: str) -> set[bytes]:
    return {key async for key in client.scan_iter(match=prefix + "*", count=1000)}


@pytest.mark.parametrize("hostile", [*HOSTILE, "{", "}", "{}", "}{", "=", "-", "猫{a}\u2028"])
async def test_hostile_names_choose_no_bucket(
    store: WorkingStore, settings: WorkingSettings, client: Redis, hostile: str
) -> None:
    one = draft(id=hostile, session=hostile, owner=hostile, key=hostile, group=hostile)
    await store.write([one, draft(session=hostile), draft(owner=hostile)], EVERYONE)
    found = await store.timeline(Page(within(hostile, Scope(frozenset({hostile})))))
    assert [(r.id, r.owner, r.key) for r in found.records] == [(hostile, hostile, hostile)]
    tagged = re.compile(re.escape(settings.prefix).encode() + rb"\{[0-9a-f]{32}\}:[mzjs]")
    records = [key for key in await keys_of(client, settings.prefix) if key.endswith((b":z", b":j"))]
    assert [key for key in records if not tagged.fullmatch(key)] == []


async def test_null_and_the_word_for_it_are_different_buckets(store: WorkingStore) -> None:
    names = [None, "null", "None", "-", "=", ""]
    await store.write([draft(repr(n), session=n) for n in names[:-1]], EVERYONE)
    for n in names[:-1]:
        found = await store.timeline(Page(within(n)))  # pyright: ignore[reportArgumentType] null is a session
        assert [r.content for r in found.records if r.content == repr(n)] == [repr(n)]
        assert all(r.session == n for r in found.records)


async def test_what_is_deleted_leaves_only_what_expires(client: Redis, valkey_url: str) -> None:
    prefix = name("t") + ":"
    single = WorkingStore(WorkingSettings(url=valkey_url, prefix=prefix))
    await single.open()
    owner = name()
    drafts = [
        draft(session=name(), owner=owner, key=name("k"), embedding=[1.0, 2.0], features="AA==")
        for _ in range(5)
    ]
    await single.write(drafts, EVERYONE)
    await single.write([draft(owner=owner, key=drafts[0].key, session=drafts[0].session)], EVERYONE)
    assert len((await single.forget(Filter(Scope(frozenset({owner}))))).ids) == 5
    await single.close()
    lives = {key: await client.ttl(key) for key in await keys_of(client, prefix)}
    assert {key for key, life in lives.items() if life == -1} == {f"{prefix}{k}".encode() for k in "lw"}
    assert {life > 29 * 86_400 for life in lives.values() if life != -1} == {True}


async def test_a_tombstone_expires_by_itself(valkey_url: str, client: Redis) -> None:
    brief = WorkingStore(WorkingSettings(url=valkey_url, prefix=name("t") + ":", tombstone_days=0.00001))
    await brief.open()
    one = draft()
    [written] = await brief.write([one], EVERYONE)
    await brief.delete_if([Named(one.id, written.etag)], "moved", "x")
    while await brief.tombstones([one.id]):
        pass
    assert (await brief.write([one], EVERYONE))[0].outcome == "created"
    await brief.close()


async def test_a_mark_outlives_the_records_of_its_session(store: WorkingStore) -> None:
    session, owner = name(), name()
    one = draft(session=session, owner=owner)
    [written] = await store.write([one], EVERYONE)
    await store.delete_if([Named(one.id, written.etag)], "moved", "episodic")
    for scope in (EVERYONE, Scope.of(owner)):
        found = await store.timeline(Page(within(session, scope)))
        assert (found.records, found.elsewhere) == ([], True)
    assert not (await store.timeline(Page(within(session, Scope.of(name()))))).elsewhere
    assert [s for s in (await store.sessions(EVERYONE)).sessions if s.session == session] == []
    late, other = draft(session=session, owner=owner), draft(session=session, owner=name())
    assert [w.elsewhere for w in await store.write([late, other], EVERYONE)] == [True, False]
    brought = draft(session=session, owner=owner, created_at="2024-01-01T00:00:00.000Z")
    assert [w.elsewhere for w in await store.transfer([brought])] == [True]


json_values = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**80), 2**80)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(
            strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner
        )
    ),
    max_leaves=10,
)
text = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metadata=strategies.dictionaries(text, json_values, max_size=4),
    content=text,
    session=text,
    vector=strategies.lists(strategies.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1),
)
async def test_any_record_comes_back_as_it_was_given(
    valkey_url: str, metadata: dict[str, object], content: str, session: str, vector: list[float]
) -> None:
    store = WorkingStore(WorkingSettings(url=valkey_url, prefix=name("t") + ":"))
    await store.open()
    try:
        one = draft(content, metadata=metadata, session=session, embedding=vector)
        await store.write([one], EVERYONE)
        await store.touch([one.id], "2026-01-01T00:00:00.000Z")
        await store.reinforce([one.id], 0.1, EVERYONE)
        [record] = (await store.timeline(Page(within(session), vectors=True))).records
        assert repr(record.metadata) == repr(metadata)
        assert record.content == content
        assert repr(record.embedding) == repr(one.embedding)
        assert record.salience == 1.1
    finally:
        await store.close()


@given(numbers=strategies.floats(allow_nan=False, allow_infinity=False))
def test_a_salience_is_kept_to_the_last_bit(numbers: float) -> None:
    given_draft = Draft(id="x", salience=numbers, seq=1)
    arguments = draft_arguments(given_draft, transfer=True)
    body, state = str(arguments[4]).encode(), str(arguments[8]).encode()
    state = state.replace(b'["", "1"', b'["etag", "1"')
    assert row_of([b"x", body, state, b"", b""]).fields["salience"] == numbers


async def test_recall_passes_over_what_is_not_active(store: WorkingStore) -> None:
    session = name()
    drafts = [
        draft(str(n), session=session, seq=n + 1, status="superseded" if n % 2 else "active")
        for n in range(10)
    ]
    await store.transfer(drafts)
    found = await store.search(Search(within(session), 3))
    assert [r.content for r in found.records] == ["8", "6", "4"]
    assert len((await store.search(Search(within(session), 20, text="1 2 3 4"))).records) == 2
    assert len((await store.timeline(Page(within(session)))).records) == 10


async def test_everything_is_listed_in_order_over_all_sessions(store: WorkingStore) -> None:
    # Interleaved, with ties within and over sessions.
    drafts = [
        draft(session=f"s{n % 30}", owner=f"o{n % 3}" if n % 4 else None, seq=1_000 + n * 7 % 101)
        for n in range(120)
    ]
    await store.transfer(drafts)
    for scope, expected in (
        (EVERYONE, drafts),
        (Scope.of("o1"), [d for d in drafts if d.owner in (None, "o1")]),
    ):
        found: list[tuple[int, str]] = []
        after: tuple[int, str] | None = None
        while page := await store.entries(Filter(scope), 37, after):
            found += [(entry.seq, entry.id) for entry in page]
            after = found[-1]
        assert found == sorted((d.seq or 0, d.id) for d in expected)
        for at in range(0, len(found), 30):
            rest = await store.entries(Filter(scope), 1_000, found[at])
            assert [(entry.seq, entry.id) for entry in rest] == found[at + 1 :]
