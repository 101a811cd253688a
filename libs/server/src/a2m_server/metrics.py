"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from a2m_protocol.errors import Code
from a2m_server.methods import EXTENSIONS, METHODS

_LABELS = frozenset({*METHODS, *EXTENSIONS, "memory/describe", "notification"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_CODES = frozenset({0, *Code})
_READS = frozenset({"memory/recall", "memory/timeline", "memory/fetch"})


class Metrics:
    """Requests by method and error code (0 is success), and the seconds they took.

    Only methods that the server knows become labels, so that no client can make up new ones. A server that
    counts more adds its collectors to `registry`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
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
        self._in_flight = Gauge(
            "a2m_requests_in_flight", "Requests that are being answered.", registry=self.registry
        )
        self._reads = Counter(
            "a2m_reads",
            "Reads that were answered, by whether anything was found.",
            ["method", "found"],
            registry=self.registry,
        )
        self._refused = Counter(
            "a2m_http_refusals",
            "HTTP requests that were refused before JSON-RPC began, by status.",
            ["status"],
            registry=self.registry,
        )
        self._unwritten = Gauge(
            "a2m_audit_lines_waiting",
            "Lines of the audit log that wait for the disk.",
            registry=self.registry,
        )

    @contextmanager
    def under_way(self) -> Generator[None]:
        """While a request is being answered."""
        self._in_flight.inc()
        try:
            yield
        finally:
            self._in_flight.dec()

    def count(self, method: str, code: int, seconds: float) -> None:
        method = known(method)
        # A tier that is not ours may answer with any number.
        self._requests.labels(method, code if code in _CODES else "other").inc()
        self._seconds.labels(method).observe(seconds)

    def read(self, method: str, *, found: bool) -> None:
        """A read that succeeded; a method that does not read is not counted."""
        if method in _READS:
            self._reads.labels(method, "true" if found else "false").inc()

    def refused(self, status: int) -> None:
        self._refused.labels(status).inc()

    def watch_audit(self, waiting: Callable[[], int]) -> None:
        """Ask the audit log at each scrape how many lines wait."""
        self._unwritten.set_function(waiting)

    def text(self) -> str:
        """All that is counted, in the Prometheus text format."""
        return generate_latest(self.registry).decode()


def known(method: str) -> str:
    """A method as a label and in a log: its name where it is one, else `other`."""
    return method if method in _LABELS else "other"
