import pytest

from a2m_server.contract import EmbeddingContract, TierContract, draft
from a2m_server.memory import DAY, MemoryTier
from a2m_server.values import EVERYONE, Filter, Named, Tombstone


class TestMemoryTier(TierContract, EmbeddingContract):
    @pytest.fixture
    async def store(self) -> MemoryTier:
        return MemoryTier()

    @pytest.fixture
    async def fresh(self) -> MemoryTier:
        return MemoryTier()


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


async def test_tombstones_go_when_they_are_too_old_a_few_at_a_time() -> None:
    clock = Clock()
    tier = MemoryTier(tombstone_days=2, clock=clock)
    drafts = [draft(str(n)) for n in range(1_000)]
    ids = [d.id for d in drafts]
    written = await tier.write(drafts, EVERYONE)
    await tier.delete_if([Named(w.id, w.etag) for w in written[:500]], "moved", "t")
    await tier.forget(Filter())
    clock.now += DAY
    # Put a day later, of something old: it is the day on which it was put that counts.
    await tier.bury([Tombstone("late", "moved", 1)])
    clock.now += DAY
    await tier.write([draft()], EVERYONE)
    assert len(await tier.tombstones(ids)) == 1_000
    clock.now += 1
    await tier.write([draft()], EVERYONE)
    left = len(await tier.tombstones(ids))
    assert 800 < left < 1_000
    for _ in range(20):
        await tier.write([draft()], EVERYONE)
    assert [grave.id for grave in await tier.tombstones([*ids, "late"])] == ["late"]
    [again] = await tier.write([drafts[0]], EVERYONE)
    assert again.outcome == "created"


async def test_the_last_seq_of_a_session_is_kept_as_long_as_it_is_ahead() -> None:
    clock = Clock()
    tier = MemoryTier(clock=clock)
    ahead = clock.now + DAY
    drafts = [draft(session=str(n), seq=clock.now - n) for n in range(2_000)]
    await tier.transfer([draft("ahead", session="s", seq=ahead), *drafts])
    for n in range(200):
        clock.now += 1_000
        await tier.write([draft(session=f"w{n}")], EVERYONE)
    assert len(tier._ledger.latest) < 200  # pyright: ignore[reportPrivateUsage] nothing else shows it
    one = draft("later", session="s")
    await tier.write([one], EVERYONE)
    [record] = await tier.read([one.id])
    assert record.seq == ahead + 1
