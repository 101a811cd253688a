import asyncio
from collections.abc import AsyncIterator

import pytest

from a2m_protocol.errors import A2MError, Code
from a2m_server.identity import ANONYMOUS, SERVICE, Caller, Role, principal
from a2m_server.rates import Rates, rates_of
from a2m_server.settings import ServerSettings


def named(name: str) -> Caller:
    return principal(name, "team", frozenset({Role.AGENT}), (), pooled=True)


async def admitted(rates: Rates, caller: Caller, calls: int) -> int:
    """How many of so many calls at once are admitted."""
    done = await asyncio.gather(*(rates.admit(caller) for _ in range(calls)), return_exceptions=True)
    for one in done:
        assert one is None or (isinstance(one, A2MError) and one.code == Code.QUOTA_EXCEEDED)
    return sum(one is None for one in done)


async def test_each_principal_has_a_rate_of_its_own() -> None:
    rates = Rates("5/minute")
    assert await admitted(rates, named("ann"), 8) == 5
    assert await admitted(rates, named("bob"), 4) == 4
    assert await admitted(rates, named("ann"), 1) == 0


async def test_a_refusal_says_how_long_to_wait() -> None:
    rates = Rates("1/minute")
    await rates.admit(named("ann"))
    with pytest.raises(A2MError) as refused:
        await rates.admit(named("ann"))
    assert refused.value.retryable
    assert refused.value.data is not None
    wait = refused.value.data["retry_after"]
    assert isinstance(wait, int)
    assert 1 <= wait <= 120
    assert f"wait {wait} s" in refused.value.message


async def test_of_several_rates_all_count() -> None:
    assert await admitted(Rates("100/second; 3/hour"), named("ann"), 5) == 3


async def test_who_waits_is_admitted_again() -> None:
    rates = Rates("2/second")
    assert await admitted(rates, named("ann"), 3) == 2
    async with asyncio.timeout(10):
        while not await admitted(rates, named("ann"), 1):  # noqa: ASYNC110 it is time that has to pass
            await asyncio.sleep(0.1)


async def test_the_router_is_not_held_up_and_those_without_a_name_share_one_rate() -> None:
    rates = Rates("2/minute")
    assert await admitted(rates, SERVICE, 50) == 50
    assert await admitted(rates, ANONYMOUS, 3) == 2
    assert await admitted(rates, named("-"), 3) == 2


@pytest.fixture
async def pair(valkey_url: str) -> AsyncIterator[tuple[Rates, Rates]]:
    rates = Rates("5/minute", valkey_url), Rates("5/minute", valkey_url)
    yield rates
    for one in rates:
        await one.close()


async def test_servers_that_share_a_redis_count_together(pair: tuple[Rates, Rates]) -> None:
    assert sum([await admitted(rates, named("zoe"), 4) for rates in pair]) == 5


async def test_while_the_redis_is_away_each_counts_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    rates = Rates("3/minute", "redis://user:secret@127.0.0.1:1/0")
    assert await admitted(rates, named("ann"), 5) == 3
    assert caplog.text.count("by this server alone") == 5, "asked at once, none knew of the others"
    assert await admitted(rates, named("bob"), 5) == 3
    assert caplog.text.count("by this server alone") == 5, "it is left alone for a while"
    assert "secret" not in caplog.text
    await rates.close()


@pytest.mark.parametrize(
    "text", ["", "many", "5", "5/fortnight", "-1/second", "0/second", "5/second; 0/hour"]
)
def test_a_rate_that_is_none_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="expected a rate such as 50/second"):
        ServerSettings(rate=text)


def test_rates_are_read_as_people_write_them() -> None:
    assert [str(rate) for rate in rates_of("20/second; 1000 per hour")] == [
        "20 per 1 second",
        "1000 per 1 hour",
    ]
