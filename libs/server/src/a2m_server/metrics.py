"""What a server counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from a2m_server.methods import EXTENSIONS, METHODS

_LABELS = frozenset({*METHODS, *EXTENSIONS, "memory/describe", "notification"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Requests by method and error code (0 is success), and the seconds they took.

    Only methods that the server knows become labels, so that no client can make up new ones. A server that
    counts more adds its collectors to `registry`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "a2m_requests",
            "Requests by method and JSON-RPC error code, 0 for success.",
            ["method", "code"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "a2m_request_seconds",
            "How long requests took.",
            ["method"],
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def count(self, method: str, code: int, seconds: float) -> None:
        if method not in _LABELS:
            method = "other"
        self._requests.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)

    def text(self) -> str:
        """All that is counted, in the Prometheus text format."""
        return generate_latest(self.registry).decode()
