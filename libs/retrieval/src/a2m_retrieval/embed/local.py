"""The packaged model: queries in this process, documents in another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from a2m_protocol.errors import unavailable
from a2m_retrieval.embed import minilm
from a2m_retrieval.embed.port import Encoded, Kind, batches
from a2m_retrieval.embed.process import ModelProcess
from a2m_retrieval.embed.vocabulary import known
from a2m_retrieval.metric import Metric

if TYPE_CHECKING:
    from a2m_retrieval.embed.late import Tokens

BATCH = 16
BATCH_CHARACTERS = 16_384
KNOWN = 1 / 3
IDLE = 60.0
"""Seconds after which a process without documents to embed gives its memory back."""
GRACE = 5.0
"""Seconds in which it may finish what it is at when the embedder closes."""


class LocalEmbedder:
    """`minilm` for queries, on a thread, and again for documents, in a process of lower priority.

    The process is started by the first documents and ends when there are none for a while. English above
    all: it reads a text of which a third of the words are in its vocabulary. A text counts up to
    `max_tokens`, in windows whose vectors are averaged. `threads` is how many each of the two may use for a
    computation. Raises `ValueError` when the model's packages are missing.
    """

    model = minilm.MODEL
    dimensions = minilm.DIMENSIONS
    max_tokens = minilm.MAX_TOKENS
    metric: Metric = "cosine"

    def __init__(self, *, threads: int = 1) -> None:
        minilm.check_installed()
        self._threads = threads
        self._loaded: minilm.MiniLM | None = None
        self._process: ModelProcess | None = None
        self._executors: dict[Kind, ThreadPoolExecutor] = {}

    async def open(self) -> None:
        # One thread each: a batch is not begun before the one before it is done, whoever still wants that.
        self._executors = {
            "query": ThreadPoolExecutor(1, "embed-query"),
            "document": ThreadPoolExecutor(1, "embed-document"),
        }
        self._process = ModelProcess(self._threads, IDLE)
        loop = asyncio.get_running_loop()
        try:
            self._loaded = await loop.run_in_executor(self._executors["query"], minilm.MiniLM, self._threads)
        finally:
            if self._loaded is None:
                await self.close()

    async def close(self) -> None:
        """Give the model's memory back, once the batches under way are done or `GRACE` is over."""
        self._loaded = None
        executors, self._executors = self._executors, {}
        process, self._process = self._process, None
        if process is not None:
            try:
                ended = executors["document"].submit(process.close)
                await asyncio.wait([asyncio.wrap_future(ended)], timeout=GRACE)
            finally:
                process.kill()
        for executor in executors.values():
            await asyncio.to_thread(executor.shutdown)

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
            if self._loaded is None or self._process is None:
                raise unavailable("the embedder", "it is not open")
            model = self._loaded if kind == "query" else self._process
            found += await loop.run_in_executor(self._executors[kind], model.encode, batch)
        return found
