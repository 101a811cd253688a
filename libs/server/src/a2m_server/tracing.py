"""Traces by OpenTelemetry: one span a request, and one wherever a server asks what is behind it.

Nothing is recorded unless the environment names a collector. What a span says is a method, a tier, a kind of
database, a code and the name of an exception: nothing that a caller wrote.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from a2m_protocol.errors import A2MError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
PATIENCE = 3.0
"""Seconds for a batch of spans, where the environment does not say: a server that ends waits for its last."""
CARRIED = ("traceparent", "tracestate")
"""The headers of W3C Trace Context. Baggage is not passed on: nobody knows what is in it."""

_TRACER = trace.get_tracer("a2m")
_PROPAGATOR = TraceContextTextMapPropagator()
_NOTHING = nullcontext()


def start(service: str) -> None:
    """Send spans to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names, if it names one; once a process.

    Sampling, batching, headers and resource follow the standard's variables; `service` is the name without
    `OTEL_SERVICE_NAME`. Raises `ValueError` where the environment asks for what is not here.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS) or _turned_off():
        return
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ValueError(f"traces are sent as http/protobuf alone, and {PROTOCOLS[1]} is {protocol[:40]!r}")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ValueError(f"{ENDPOINTS[1]} is set: install a2m-server[tracing] for it") from error
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": f"a2m-{service}"}))
    patience = None if any(os.environ.get(name) for name in TIMEOUTS) else PATIENCE
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=patience)))
    trace.set_tracer_provider(provider)


def _turned_off() -> bool:
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    if exporter not in ("", "otlp", "none"):
        raise ValueError(f"OTEL_TRACES_EXPORTER: expected otlp or none, not {exporter[:40]!r}")
    return exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


class Span(AbstractContextManager["Span"]):
    """A span while it lasts, as the current one; what ends it by raising is told by its name alone."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span))

    def answered(self, method: str, code: int | None) -> None:
        """Name the request, and say how it ended: 0 is success."""
        self._span.update_name(method)
        self._span.set_attribute("rpc.method", method)
        if code:
            self._failed(str(code))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, A2MError):
            self._failed(str(int(error.code)))
        elif kind is not None:
            self._failed(kind.__qualname__)
        self._span.end()
        context.detach(self._token)

    def _failed(self, why: str) -> None:
        self._span.set_attribute("error.type", why)
        self._span.set_status(StatusCode.ERROR)


def answering(request: str) -> AbstractContextManager[Span | None]:
    """The span of a request, within the caller's trace where that was joined."""
    if not _recorded():
        return _NOTHING
    attributes = {"rpc.system.name": "jsonrpc", "a2m.request": request}
    return Span(_TRACER.start_span("a2m", None, SpanKind.SERVER, attributes))


def working(name: str) -> AbstractContextManager[Span | None]:
    """The span of something that nobody asked for; it begins a trace."""
    return Span(_TRACER.start_span(name, Context())) if _recorded() else _NOTHING


def asking(name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Span | None]:
    """The span of a question to a tier or a database, where it is part of something that is recorded."""
    if not trace.get_current_span().is_recording():
        return _NOTHING
    return Span(_TRACER.start_span(name, kind=SpanKind.CLIENT, attributes=attributes))


def querying(system: str, operation: str) -> AbstractContextManager[Span | None]:
    """The same for a database of a kind, as the standard names it."""
    return asking(f"{system} {operation}", {"db.system.name": system, "db.operation.name": operation})


def told(headers: Mapping[str, str]) -> Context | None:
    """The caller's trace by its headers, None where there is no valid one."""
    found = _PROPAGATOR.extract(headers, Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def carried() -> dict[str, str]:
    """The headers by which who is asked becomes part of the trace."""
    headers: dict[str, str] = {}
    if trace.get_current_span() is not trace.INVALID_SPAN:
        _PROPAGATOR.inject(headers)
    return headers


def trace_id() -> str | None:
    """Of the current trace, in hexadecimal, also where it is not recorded here."""
    span = trace.get_current_span()
    if span is trace.INVALID_SPAN:
        return None
    return trace.format_trace_id(span.get_span_context().trace_id)


def joined(parent: Context | None) -> AbstractContextManager[None]:
    """Be part of a caller's trace, which is passed on also where nothing of it is recorded here."""
    return _NOTHING if parent is None else _Joined(parent)


class _Joined(AbstractContextManager[None]):
    def __init__(self, parent: Context) -> None:
        self._token = context.attach(trace.set_span_in_context(trace.get_current_span(parent)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.detach(self._token)


def _recorded() -> bool:
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)
