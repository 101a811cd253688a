"""Counts of requests for Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict

from a2m_protocol.errors import Code

_UNREADABLE = {Code.PARSE, Code.INVALID_REQUEST, Code.METHOD_NOT_FOUND}


class Metrics:
    """Requests by method and error code (0 is success), and the seconds they took.

    Only methods that the server knows become labels, so that no client can make up new ones.
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, method: str, code: int, seconds: float) -> None:
        if code in _UNREADABLE or not method:
            method = "other"
        self._requests[method, code] += 1
        self._seconds[method] += seconds

    def text(self) -> str:
        """The counts in the Prometheus text format."""
        lines = [
            "# HELP a2m_requests_total Requests by method and JSON-RPC error code, 0 for success.",
            "# TYPE a2m_requests_total counter",
            *(
                f'a2m_requests_total{{method="{method}",code="{code}"}} {count}'
                for (method, code), count in sorted(self._requests.items())
            ),
            "# HELP a2m_request_seconds_total Seconds spent on requests.",
            "# TYPE a2m_request_seconds_total counter",
            *(
                f'a2m_request_seconds_total{{method="{method}"}} {seconds:.6f}'
                for method, seconds in sorted(self._seconds.items())
            ),
        ]
        return "\n".join(lines) + "\n"
