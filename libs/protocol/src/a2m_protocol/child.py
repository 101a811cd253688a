"""The stdio transport: a server as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from a2m_protocol import jsonrpc
from a2m_protocol.answers import checked
from a2m_protocol.errors import A2MError, JsonObject, TransportError
from a2m_protocol.transports import Deliver

_LONGEST_LINE = 256 * 1024 * 1024
_GOODBYE_SECONDS = 5.0


class StdioTransport:
    """A server started as a child process, one JSON value a line; its standard error goes to ours.

    Closing closes its input, waits a few seconds, and kills it if it has not ended by then.
    """

    deliver: Deliver | None = None

    def __init__(
        self, command: str | Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._command = shlex.split(command) if isinstance(command, str) else list(command)
        self._env = None if env is None else {**os.environ, **env}
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[object, asyncio.Future[JsonObject]] = {}

    @property
    def process(self) -> asyncio.subprocess.Process | None:
        """The child, while the transport is open."""
        return self._process

    async def open(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._env,
                cwd=self._cwd,
                limit=_LONGEST_LINE,
            )
        except OSError as error:
            raise TransportError(
                f"cannot start {self._command[0]!r}: {error.strerror}", maybe_received=False, retryable=False
            ) from error
        self._reader = asyncio.create_task(self._read(self._process))

    async def close(self) -> None:
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        self._process = self._reader = None
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await reader

    async def exchange(self, message: JsonObject, seconds: float) -> JsonObject:
        number = message["id"]
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(seconds):
                await self._write(message)
                return await answer
        except TimeoutError as error:
            raise TransportError(
                f"{self._command[0]}: no answer within {seconds:.3g} s", maybe_received=True
            ) from error
        finally:
            del self._waiting[number]

    async def notify(self, message: JsonObject, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._write(message)
        except TimeoutError as error:
            raise TransportError(
                f"{self._command[0]}: does not read within {seconds:.3g} s", maybe_received=True
            ) from error

    async def _write(self, message: JsonObject) -> None:
        process, reader = self._process, self._reader
        if process is None or process.stdin is None or reader is None or reader.done():
            raise TransportError(f"{self._command[0]}: the server has ended", maybe_received=False)
        try:
            process.stdin.write(jsonrpc.encode(message) + b"\n")
            await process.stdin.drain()
        except ConnectionError as error:
            raise TransportError(f"{self._command[0]}: the server has ended", maybe_received=True) from error

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        why = "the server ended before it answered"
        if process.stdout is not None:
            try:
                async for line in process.stdout:
                    self._sort(line)
            except ValueError:
                why = "the server sent a line that is too long"
                process.kill()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(TransportError(f"{self._command[0]}: {why}", maybe_received=True))

    def _sort(self, line: bytes) -> None:
        """Hand a line to whom it is for. What is for nobody, a late answer say, is dropped."""
        try:
            message = jsonrpc.decode(line)
        except A2MError:
            self._fail_oldest("sent a line that is not JSON")
            return
        if not isinstance(message, dict):
            self._fail_oldest("sent a line that is not an object")
        elif "method" in message:
            if "id" not in message and self.deliver is not None:
                self.deliver(message)
        elif message.get("id") is None:
            self._fail_oldest(f"answered {str(message.get('error'))[:200]}")
        else:
            number = message["id"]
            answer = self._waiting.get(number) if isinstance(number, int) else None
            if answer is not None and not answer.done():
                _settle(answer, message, number, self._command[0])

    def _fail_oldest(self, what: str) -> None:
        # Answers come in the order of the requests, so this is the one that it stands for.
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(TransportError(f"{self._command[0]} {what}", maybe_received=True))
                return


def _settle(answer: asyncio.Future[JsonObject], message: JsonObject, number: object, who: str) -> None:
    try:
        answer.set_result(checked(message, number, who))
    except TransportError as error:
        answer.set_exception(error)
