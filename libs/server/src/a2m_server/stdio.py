"""The stdio server: one JSON value a line, and nothing else on standard output."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import BinaryIO

from anyio.from_thread import BlockingPortal, start_blocking_portal

from a2m_protocol import jsonrpc
from a2m_protocol.errors import A2MError, Code
from a2m_server.audit import AuditLog
from a2m_server.exchange import Exchange, Handler
from a2m_server.identity import LOCAL, Peer
from a2m_server.metrics import Metrics
from a2m_server.settings import ServerSettings

log = logging.getLogger(__name__)

_SKIP = 65_536


def serve(handler: Handler, settings: ServerSettings) -> None:
    """Serve one client on standard input and output until it closes the input; call from the main thread.

    Requests are answered in the order they came. SIGTERM and SIGINT end the server after the answer that is
    due. Whatever else the process prints goes to standard error.
    """
    with _streams() as (lines, out), start_blocking_portal() as portal:
        audit = AuditLog(settings.audit_file) if settings.audit_file is not None else None
        with ExitStack() as opened:
            if audit is not None:
                portal.call(audit.open)
                opened.callback(portal.call, audit.close)
            portal.call(handler.open)
            opened.callback(portal.call, handler.close)
            try:
                Session(handler, settings, portal, out, audit).run(lines)
            except BrokenPipeError:
                log.info("the client has gone")


class Session:
    """The conversation with the one client.

    The main thread reads, waits for the loop in the portal's thread, and writes; signals interrupt it in
    whatever it waits for. A second thread writes what is pushed meanwhile.
    """

    def __init__(
        self,
        handler: Handler,
        settings: ServerSettings,
        portal: BlockingPortal,
        out: int,
        audit: AuditLog | None = None,
    ) -> None:
        self._exchange = Exchange(handler, settings.request_timeout, Metrics(), audit)
        self._cap = settings.max_body
        self._portal = portal
        self._out = out
        self._writing = threading.Lock()
        self._pushed = threading.Event()
        self._peer = Peer(LOCAL, push=True, client="stdio", woken=self._pushed.set)
        self._reading = False
        self._stopping = False

    def run(self, lines: BinaryIO) -> None:
        """Answer every line; returns at the end of the input or when a signal asks for it."""
        threading.Thread(target=self._push, name="a2m-push", daemon=True).start()
        with self._signals():
            try:
                for line in self._lines(lines):
                    self._write(self._too_long() if line is None else self._answer(line))
            except _InterruptedError:
                return

    def _lines(self, lines: BinaryIO) -> Iterator[bytes | None]:
        """Lines that are not blank, None for one that is over the cap."""
        while not self._stopping:
            line = self._read(lines, self._cap + 1)
            if not line:
                return
            if len(line) > self._cap and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = self._read(lines, _SKIP)
                yield None
            elif line.strip():
                yield line

    def _read(self, lines: BinaryIO, most: int) -> bytes:
        self._reading = True
        try:
            if self._stopping:
                raise _InterruptedError
            return lines.readline(most)
        finally:
            self._reading = False

    def _answer(self, line: bytes) -> bytes | None:
        return self._portal.call(self._exchange.answer, line, self._peer)

    def _too_long(self) -> bytes:
        error = A2MError(
            Code.INVALID_REQUEST,
            f"the message is longer than {self._cap} bytes: send fewer records at a time",
        )
        return jsonrpc.encode(jsonrpc.failure(None, error))

    def _write(self, answer: bytes | None) -> None:
        with self._writing:
            self._drain()
            if answer is not None:
                _write_all(self._out, answer + b"\n")

    def _push(self) -> None:
        while True:
            self._pushed.wait()
            self._pushed.clear()
            try:
                with self._writing:
                    self._drain()
            except OSError:  # the main thread meets the same when it writes or reads next
                return

    def _drain(self) -> None:
        outbox = self._peer.outbox
        while outbox:
            _write_all(self._out, jsonrpc.encode(outbox.popleft()) + b"\n")

    @contextmanager
    def _signals(self) -> Generator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        if self._reading:
            raise _InterruptedError


class _InterruptedError(Exception):
    """A signal came while nothing was due."""


@contextmanager
def _streams() -> Generator[tuple[BinaryIO, int]]:
    """Standard input and output for ourselves alone: a stray print goes to standard error."""
    sys.stdout.flush()
    own_in, own_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with os.fdopen(own_in, "rb", buffering=_SKIP) as lines:
        try:
            yield lines, own_out
        finally:
            os.close(own_out)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
