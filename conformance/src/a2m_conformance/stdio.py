"""The stdio transport: a server as a child process, one JSON value a line."""

import asyncio
import itertools
import json
import os
import shlex
from typing import Self

from a2m_conformance.outcome import Unreachable
from a2m_conformance.requirement import Transport
from a2m_conformance.shapes import Json, is_object

_LINE_LIMIT = 256 * 1024 * 1024
_LONGEST_GOODBYE = 5.0


class StdioWire:
    """A server that was started by us and speaks on its standard streams.

    Keeps what no request asked for: `notifications` (in order of arrival), `requests` (which a server must
    never send), `strays` (responses to nothing) and `noise` (lines that are no JSON object).
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.notifications: list[Json] = []
        self.requests: list[Json] = []
        self.strays: list[Json] = []
        self.noise: list[str] = []
        self._waiting: dict[str, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)
        self._one_raw = asyncio.Lock()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: str, env: dict[str, str] | None = None) -> Self:
        """Start `command` (split like a shell would, run without one)."""
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_LIMIT,
                env=os.environ | (env or {}),
            )
        except OSError as error:
            raise Unreachable(f"cannot start {command!r}: {error}") from error
        return cls(process)

    @property
    def transport(self) -> Transport:
        """Always stdio."""
        return "stdio"

    async def request(self, method: str, params: Json) -> Json:
        number = next(self._numbers)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        future = self.expect_response(number)
        try:
            await self.write(json.dumps(message, ensure_ascii=False))
            return await future
        finally:
            self._waiting.pop(json.dumps(number), None)

    async def exchange(self, text: str, request_id: Json = None) -> Json:
        # A response to something unreadable has a null id: one at a time, or they could not be told apart.
        async with self._one_raw:
            futures = {self.expect_response(None)}
            if request_id is not None:
                futures.add(self.expect_response(request_id))
            try:
                await self.write(text)
                done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
                return done.pop().result()
            finally:
                for future in futures:
                    future.cancel()
                self._waiting.pop("null", None)
                self._waiting.pop(json.dumps(request_id), None)

    async def notify(self, method: str, params: Json) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def write(self, text: str) -> None:
        """Send one line (or several) as it is."""
        if self.process.stdin is None or self._reader.done():
            raise Unreachable("the server has ended")
        try:
            self.process.stdin.write(text.encode() + b"\n")
            await self.process.stdin.drain()
        except ConnectionError as error:
            raise Unreachable("the server has closed its standard input") from error

    async def hang_up(self) -> int:
        """Close the server's standard input and return its exit code; TimeoutError if it stays."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        async with asyncio.timeout(_LONGEST_GOODBYE):
            code = await self.process.wait()
            await self._reader
        return code

    async def close(self) -> None:
        try:
            await self.hang_up()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            await self._reader

    def expect_response(self, request_id: Json) -> asyncio.Future[Json]:
        """What the response that carries this id will be, for who writes the request by hand."""
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[json.dumps(request_id)] = future
        return future

    async def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it was opened as a pipe
        async for line in self.process.stdout:
            self._sort(line)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Unreachable("the server ended before it answered"))

    def _sort(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode())
        except ValueError:
            self.noise.append(line.decode(errors="replace").rstrip("\n"))
            return
        if not is_object(message):
            self.noise.append(line.decode(errors="replace").rstrip("\n"))
        elif "method" in message:
            (self.requests if "id" in message else self.notifications).append(message)
        else:
            future = self._waiting.get(json.dumps(message.get("id")))
            if future is None or future.done():
                self.strays.append(message)
            else:
                future.set_result(message)
