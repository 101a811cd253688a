"""What a tier answers that cannot be read is told by what is wrong with it, and not by what is in it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from a2m_protocol.client import Client, LocalTransport
from a2m_protocol.errors import A2MError, TransportError
from a2m_router.counts import Counts
from a2m_router.remote import RemoteTier
from a2m_server.values import EVERYONE, Filter, Page

SECRET = "zanzibar-cinnamon"


def tier(answer: dict[str, Any], counts: Counts | None = None) -> RemoteTier:
    async def handle(message: Any) -> Any:
        return {"jsonrpc": "2.0", "id": message["id"], **answer}

    return RemoteTier(Client(LocalTransport(handle)), "other", counts=counts)


@pytest.mark.parametrize(
    "result",
    [
        {"records": SECRET},
        {"records": [SECRET]},
        {"records": [{"id": "1", "content": 7, "created_at": SECRET}]},
        {
            "records": [
                {"id": "1", "content": SECRET, "created_at": "2026-01-01T00:00:00.000Z", "seq": SECRET}
            ]
        },
    ],
)
async def test_an_answer_that_cannot_be_read_is_not_quoted(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(TransportError, match="cannot be read") as failed:
        await tier({"result": result}).timeline(Page(Filter(EVERYONE)))
    assert SECRET not in failed.value.message
    assert SECRET not in caplog.text


async def test_calls_to_a_tier_are_counted_by_codes_that_are_known() -> None:
    registry = CollectorRegistry()
    counts = Counts(registry)
    for code in (-32602, -999_123):
        answer = {"error": {"code": code, "message": "no"}}
        with pytest.raises(A2MError):
            await tier(answer, counts).timeline(Page(Filter(EVERYONE)))
    await tier({"result": {"records": []}}, counts).timeline(Page(Filter(EVERYONE)))
    labels = {"tier": "other", "method": "memory/timeline"}
    for code in ("0", "-32602", "other"):
        assert registry.get_sample_value("a2m_tier_requests_total", labels | {"code": code}) == 1
    assert registry.get_sample_value("a2m_tier_request_seconds_count", labels) == 3
