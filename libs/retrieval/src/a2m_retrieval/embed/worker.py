"""The packaged model in a process of its own, which gives way to whatever else wants the processor.

Started by `process.ModelProcess` with the threads that a computation may use, and the seconds after which
it ends when nothing is asked. A request on standard input is a JSON list of texts. The answer on standard
output is their vectors one behind the other, in float32 of this machine, and a JSON list of their features.
Each has its length in front, in four bytes. The process ends with its input, so that it never outlives who
started it.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
from array import array
from contextlib import suppress
from pathlib import Path
from typing import IO

from a2m_retrieval.embed import minilm

NICE = 10

_LENGTH = struct.Struct(">I")
_AUTOGROUP = Path("/proc/self/autogroup")


def main() -> None:
    threads, idle = int(sys.argv[1]), float(sys.argv[2])
    _lower_priority()
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = sys.stdin.buffer
    model = minilm.MiniLM(threads)
    with suppress(EOFError, BrokenPipeError):
        while select.select([requests], [], [], idle)[0]:
            send(answers, _answer(model, json.loads(receive(requests))))


def send(stream: IO[bytes], message: bytes) -> None:
    stream.write(_LENGTH.pack(len(message)) + message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """The next message; raises `EOFError` where the stream ends before it does."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, length)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError("the other end is gone")
    return found


def _answer(model: minilm.MiniLM, texts: list[str]) -> bytes:
    encoded = model.encode(texts)
    vectors = array("f", [number for e in encoded for number in e.vector])
    features = [e.tokens.packed(minilm.MODEL) if e.tokens is not None else None for e in encoded]
    return vectors.tobytes() + json.dumps(features).encode()


def _lower_priority() -> None:
    os.nice(NICE)
    # Where Linux groups processes by their session, as on a desktop, priorities count within a session alone,
    # and this process has one of its own: the group's priority is what has to be lower.
    with suppress(OSError):
        _AUTOGROUP.write_text(str(NICE))


if __name__ == "__main__":
    main()
