"""The model in this process, off the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from a2m_protocol.errors import unavailable
from a2m_retrieval.embed import minilm
from a2m_retrieval.embed.port import Encoded, Kind, batches
from a2m_retrieval.embed.vocabulary import known
from a2m_retrieval.metric import Metric

if TYPE_CHECKING:
    from a2m_retrieval.embed.late import Tokens

BATCH = 16
BATCH_CHARACTERS = 16_384
NICE = 10
KNOWN = 1 / 3


class LocalEmbedder:
    """`minilm` on two threads, one for queries and one for documents; on Linux the latter is of low priority.

    English above all: it reads a text of which a third of the words are in its vocabulary. A text counts up
    to `max_tokens`, in windows whose vectors are averaged. `threads` is how many each of the two may use for
    a computation. Raises `ValueError` when the model's packages are missing.
    """

    model = minilm.MODEL
    dimensions = minilm.DIMENSIONS
    max_tokens = minilm.MAX_TOKENS
    metric: Metric = "cosine"

    def __init__(self, *, threads: int = 1) -> None:
        minilm.check_installed()
        self._threads = threads
        self._loaded: minilm.MiniLM | None = None
        self._workers: dict[Kind, ThreadPoolExecutor] = {}

    async def open(self) -> None:
        self._workers = {
            "query": ThreadPoolExecutor(1, "embed-query"),
            "document": ThreadPoolExecutor(1, "embed-document", initializer=_lower_priority),
        }
        loop = asyncio.get_running_loop()
        try:
            self._loaded = await loop.run_in_executor(self._workers["query"], minilm.MiniLM, self._threads)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Give the model's memory back; waits for the batches that are being embedded."""
        self._loaded = None
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            await asyncio.to_thread(worker.shutdown)

    def reads(self, text: str) -> bool:
        return known(text) >= KNOWN

    def tokens(self, text: str, features: str | None) -> Tokens:
        if self._loaded is None:
            raise unavailable("the embedder", "it is not open")
        return self._loaded.tokens(text, features)

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> list[list[float]]:
        """The vectors alone."""
        return [encoded.vector for encoded in await self.encode(texts, kind=kind)]

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> list[Encoded]:
        loop = asyncio.get_running_loop()
        found: list[Encoded] = []
        # A batch is a fraction of a second, so that a cancelled call soon leaves the thread to others.
        for batch in batches(texts, BATCH, BATCH_CHARACTERS):
            if self._loaded is None:
                raise unavailable("the embedder", "it is not open")
            found += await loop.run_in_executor(self._workers[kind], self._loaded.encode, batch)
        return found


def _lower_priority() -> None:
    # Linux alone has a priority a thread. The model computes outside the interpreter lock, so that what waits
    # for the lock rarely waits for this thread.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
