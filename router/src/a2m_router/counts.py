"""What the router counts, for Prometheus; a tier's name is the only label that a configuration can add to."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from a2m_protocol.errors import Code
from a2m_router.config import TierConfig

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CODES = frozenset(str(int(code)) for code in Code) | {"0", "unreachable", "open", "cancelled"}


class Counts:
    """Calls to tiers, moves, repairs, tiers that do not answer, and what waits; added to `registry`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._asked = Counter(
            "a2m_tier_requests",
            "Calls to a tier by method and JSON-RPC error code, 0 for success, or why there is none.",
            ["tier", "method", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "a2m_tier_request_seconds",
            "How long calls to a tier took, repetitions included.",
            ["tier", "method"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.recalled = Counter(
            "a2m_recalls_answered", "Recalls that a tier answered.", ["tier"], registry=registry
        )
        self.hit = Counter(
            "a2m_recalls_hit", "Recalls for which a tier found something.", ["tier"], registry=registry
        )
        self.used = Counter(
            "a2m_recalls_used", "Recalls in whose answer a tier has a record.", ["tier"], registry=registry
        )
        self.moved = Counter(
            "a2m_moved_records",
            "Records that changed tier, and why: spill, promotion, session, group or asked.",
            ["source", "target", "why"],
            registry=registry,
        )
        self.dropped = Counter(
            "a2m_dropped_records",
            "Records that left a tier with no tier below.",
            ["tier"],
            registry=registry,
        )
        self.put_off = Counter(
            "a2m_moves_put_off",
            "Moves that failed and will be tried again.",
            ["source", "target"],
            registry=registry,
        )
        self.repaired = Counter(
            "a2m_repaired_records",
            "Copies that a move had left unsettled, by what was done about them.",
            ["tier", "verdict"],
            registry=registry,
        )
        self.reunited = Counter(
            "a2m_reunited_records", "Records that were brought back to their group.", registry=registry
        )
        self.reviewed = Counter(
            "a2m_reviewed_records",
            "Pending records that were decided on, by what was decided.",
            ["verdict"],
            registry=registry,
        )
        self.silent = Counter(
            "a2m_degraded_reads", "Times that a tier had no part in an answer.", ["tier"], registry=registry
        )
        self.open = Gauge(
            "a2m_circuit_open",
            "1 while a tier is not asked because it did not answer.",
            ["tier"],
            registry=registry,
        )
        self.embedded = Counter(
            "a2m_embedded_texts", "Texts that were given vectors.", ["kind"], registry=registry
        )
        self.unseen = Gauge(
            "a2m_embedding_waiting",
            "Records known to wait for a vector; of more than 1,000 in a tier, that many.",
            ["tier"],
            registry=registry,
        )
        self.waiting = Gauge(
            "a2m_spills_waiting", "Sessions that wait to be brought to their capacity.", registry=registry
        )

    def expect(self, tiers: Iterable[TierConfig]) -> None:
        """Begin at nought what may happen, so that a first time is seen as a rise."""
        for kind in ("query", "document"):
            self.embedded.labels(kind)
        for tier in tiers:
            self.unseen.labels(tier.name)
            for counter in (self.silent, self.dropped, self.recalled, self.hit, self.used):
                counter.labels(tier.name)
            for verdict in ("settled", "finish", "undo", "forgotten"):
                self.repaired.labels(tier.name, verdict)
            for why, target in (("spill", tier.spill_to), ("promotion", tier.promote_to)):
                if target is not None:
                    self.moved.labels(tier.name, target, why)
                    self.put_off.labels(tier.name, target)

    def asked(self, tier: str, method: str, code: str, seconds: float) -> None:
        """One call to a tier."""
        # A tier that is not ours may answer with any number.
        self._asked.labels(tier, method, code if code in _CODES else "other").inc()
        self._seconds.labels(tier, method).observe(seconds)
