"""The process that embeds documents, as the one that needs it sees it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress

from a2m_protocol.errors import unavailable
from a2m_retrieval.embed import minilm, worker
from a2m_retrieval.embed.port import Encoded

PATIENCE = 120.0
"""Seconds after which a process that gives no answer is ended. A batch takes a fraction of one to a few, and
some of them more where the processor is busy with what comes first."""

log = logging.getLogger(__name__)


class ModelProcess:
    """`minilm` in a `worker`, which is started when there is something to do and again after it ended.

    It ends by itself when nothing is asked for `idle` seconds. `encode` and `close` are for one thread.
    """

    def __init__(self, threads: int, idle: float) -> None:
        self._command = [sys.executable, "-P", "-m", worker.__name__, str(threads), str(idle)]
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Each text's vector and features; raises what is retryable when two processes in a row fail."""
        try:
            return self._exchange(texts)
        except (OSError, EOFError) as error:
            log.warning("the process that embeds documents failed (%s): another is started", self._end(error))
        try:
            return self._exchange(texts)
        except (OSError, EOFError) as error:
            raise unavailable("the embedder", f"its process failed ({self._end(error)})") from error

    def close(self) -> None:
        """End it and start no other."""
        with self._lock:
            self._closed = True
        if self._process is not None:
            _discard(self._process)
            self._process = None

    def kill(self) -> None:
        """The same at once, from any thread: an `encode` under way fails."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def _exchange(self, texts: Sequence[str]) -> list[Encoded]:
        process = self._started()
        assert process.stdin is not None, "both are pipes"  # noqa: S101 for the type checker
        assert process.stdout is not None, "both are pipes"  # noqa: S101 for the type checker
        limit = threading.Timer(PATIENCE, process.kill)
        limit.daemon = True
        limit.start()
        try:
            worker.send(process.stdin, json.dumps([text[: minilm.LONGEST] for text in texts]).encode())
            answer = worker.receive(process.stdout)
        finally:
            limit.cancel()
        width = minilm.DIMENSIONS
        numbers = array("f")
        size = len(texts) * width * numbers.itemsize
        numbers.frombytes(answer[:size])
        features = json.loads(answer[size:])
        return [
            Encoded(numbers[at * width : (at + 1) * width].tolist(), features=kept)
            for at, kept in enumerate(features)
        ]

    def _started(self) -> subprocess.Popen[bytes]:
        """The process that runs, or a new one."""
        with self._lock:
            if self._closed:
                raise unavailable("the embedder", "it is not open")
            if self._process is not None and self._process.poll() is not None:
                _discard(self._process)
                self._process = None
            if self._process is None:
                # A session of its own keeps Ctrl-C from it, which is for the one that will close it.
                self._process = subprocess.Popen(  # noqa: S603 a command of our own
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
                # Waited for, it does not stay a zombie when it ends by itself.
                threading.Thread(target=self._process.wait, name="embed-wait", daemon=True).start()
            return self._process

    def _end(self, error: Exception) -> str:
        """End a process that failed; returns why it did."""
        process, self._process = self._process, None
        if process is None:
            return str(error)
        process.kill()
        _discard(process)
        return f"status {process.returncode}"


def _discard(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes, which ends the process, and wait until it has."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            # What it did not take is lost with it.
            with suppress(BrokenPipeError):
                pipe.close()
    process.wait()
