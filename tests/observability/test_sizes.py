"""What each tier says that it holds is what it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from a2m_protocol.client import SyncClient


def test_each_tier_tells_its_records_its_bytes_and_that_its_database_answers(
    observed: Any, poll: Callable[..., Any]
) -> None:
    with SyncClient.http(observed.running.url) as client:
        described = client.describe()["tiers"]
        assert isinstance(described, list)
        counts = {tier["name"]: tier["count"] for tier in described if isinstance(tier, dict)}

    def told(tier: str) -> dict[str, float]:
        families = text_string_to_metric_families(observed.metrics(tier))
        samples = [s for family in families for s in family.samples if s.labels == {"tier": tier}]
        return {sample.name: sample.value for sample in samples}

    for tier in observed.services[1:]:
        poll(f"records of {tier}", lambda t=tier: told(t).get("a2m_records") == counts[t], 60.0)
        found = told(tier)
        assert found["a2m_bytes"] > 1000
        assert found["a2m_database_up"] == 1
        assert found["a2m_bytes"] < found.get("a2m_bytes_limit", float("inf"))
