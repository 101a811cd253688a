"""How much a store holds is measured now and then, not at each scrape."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from a2m_protocol.errors import unavailable
from a2m_server import sizes
from a2m_server.sizes import Size, Sizes, space


class Engine:
    """A store that is slow or away as it is told."""

    def __init__(self, *answers: Size | Exception | None, seconds: float = 0.0) -> None:
        self.answers = [*answers]
        self.asked = 0
        self.seconds = seconds

    async def size(self) -> Size | None:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def told(registry: CollectorRegistry, name: str) -> float | None:
    return registry.get_sample_value(name, {"tier": "semantic"})


async def test_scrapes_at_once_and_soon_after_measure_once(registry: CollectorRegistry) -> None:
    engine, gauges = Engine(Size(3, 100, 1000, 2), seconds=0.01), Sizes(registry, "semantic", 2.0)
    await asyncio.gather(*(gauges.measure(engine) for _ in range(10)))
    await gauges.measure(engine)
    assert engine.asked == 1
    found = [
        told(registry, f"a2m_{name}") for name in ("records", "bytes", "bytes_limit", "database_waiting")
    ]
    assert found == [3, 100, 1000, 2]
    assert told(registry, "a2m_database_up") == 1


async def test_what_is_not_known_has_no_value(registry: CollectorRegistry) -> None:
    await Sizes(registry, "semantic", 2.0).measure(Engine(Size(3)))
    assert told(registry, "a2m_records") == 3
    assert told(registry, "a2m_bytes") is None
    assert told(registry, "a2m_bytes_limit") is None


async def test_a_database_that_does_not_answer_is_told_and_what_was_known_stays(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "INTERVAL", 0.0)
    monkeypatch.setattr(sizes, "REST", 0.0)
    gauges = Sizes(registry, "semantic", 2.0)
    engine = Engine(Size(3), unavailable("the database", "it was switched off"), Size(4))
    for up, records in ((1, 3), (0, 3), (1, 4)):
        await gauges.measure(engine)
        assert (told(registry, "a2m_database_up"), told(registry, "a2m_records")) == (up, records)


async def test_a_scrape_does_not_wait_for_a_slow_database(registry: CollectorRegistry) -> None:
    gauges = Sizes(registry, "semantic", 0.01)
    async with asyncio.timeout(5):
        await gauges.measure(Engine(Size(3), seconds=60))
    assert told(registry, "a2m_database_up") == 0


async def test_what_took_long_is_measured_seldom(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "INTERVAL", 0.0)
    engine, gauges = Engine(Size(3), Size(3), seconds=0.05), Sizes(registry, "semantic", 2.0)
    await gauges.measure(engine)
    await gauges.measure(engine)
    assert engine.asked == 1, "for a hundred times as long as it took"


async def test_a_store_that_does_not_know_its_size_tells_nothing(registry: CollectorRegistry) -> None:
    await Sizes(registry, "semantic", 2.0).measure(Engine(None))
    assert told(registry, "a2m_records") is None
    assert told(registry, "a2m_database_up") is None


def test_the_space_of_a_folder_is_what_its_disk_gives_to_it(tmp_path: Path) -> None:
    before, _ = space(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * 100_000)
    taken, limit = space(tmp_path)
    assert 100_000 <= taken - before < 200_000
    assert limit > taken
