"""What the router counts, for Prometheus; a tier's name is the only label that a configuration can add to."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Counts:
    """Moves, repairs, tiers that did not answer, and what waits; added to `registry`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.moved = Counter(
            "a2m_moved_records", "Records that changed tier.", ["source", "target"], registry=registry
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
