"""Recall under filters that match 1, 10, 1,000 and all of many records, in episodic and in semantic.

Brings records with vectors of 384 numbers into two services of a federation of its own, on its embedded
engines, and asks each over HTTP: by words, by a vector, by both and by neither, ten records at a time. Each
answer must hold exactly as many records as match, ten at most. Prints p50 and p95 beside the same recall
without a filter and, for episodic, beside SQL by hand on a plain table of the same records in the same
database: a GIN index of the tags, one of the words, and an HNSW index of the vectors, scanned on until enough
is found. A2M_BENCH_RECORDS is how many records there are, 100,000 unless given.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import psycopg
from federated import Running, federation

from a2m_episodic.indexes import WORTH
from a2m_protocol.client import Client
from a2m_protocol.errors import JsonObject

RECORDS = int(os.environ.get("A2M_BENCH_RECORDS", "100000"))
WIDTH = 384
BATCH = 250
AT_ONCE = 4
LIMIT = 10
ROUNDS = 40
WARM = 5
SEED = 7
SETTLE_SECONDS = 1_200
MATCHING = {"of1": 1, "of10": 10, "of1000": min(1_000, RECORDS), "every": RECORDS}
KINDS = ("words", "vector", "both", "neither")

BARE = """
CREATE SCHEMA IF NOT EXISTS bench;
DROP TABLE IF EXISTS bench.bare;
CREATE TABLE bench.bare AS
    SELECT r.pk, r.seq, r.id, r.content, r.metadata, r.facts AS tags,
        to_tsvector('english', r.content) AS words, v.vec::vector(384) AS vec
    FROM episodic.records r JOIN episodic.vectors v USING (pk);
CREATE INDEX ON bench.bare USING gin (tags jsonb_path_ops);
CREATE INDEX ON bench.bare USING gin (words);
CREATE INDEX ON bench.bare (seq DESC);
SET maintenance_work_mem = '512MB';
CREATE INDEX ON bench.bare USING hnsw (vec vector_cosine_ops);
ANALYZE bench.bare;
"""
NEAR = """SELECT pk, row_number() OVER (ORDER BY distance) AS place FROM (
    SELECT pk, vec <=> %(vector)s::vector AS distance FROM bench.bare WHERE {filter}
    ORDER BY vec <=> %(vector)s::vector LIMIT {depth}) n"""
WORDS = """SELECT pk, row_number() OVER (ORDER BY score DESC) AS place FROM (
    SELECT pk, ts_rank_cd(words, query) AS score
    FROM bench.bare, to_tsquery('english', %(words)s) query WHERE {filter} AND words @@ query
    ORDER BY score DESC LIMIT {depth}) w"""
FOUND = "SELECT id, content, metadata FROM bench.bare JOIN ({ranked}) found USING (pk) ORDER BY place"
FUSED = """SELECT pk, -sum(1.0 / (60 + place)) AS place FROM (
    ({near}) UNION ALL ({words})) parts GROUP BY pk ORDER BY place LIMIT 10"""
NEWEST = "SELECT id, content, metadata FROM bench.bare WHERE {filter} ORDER BY seq DESC LIMIT 10"


@dataclass(frozen=True)
class Corpus:
    """Records to bring in, and questions of the same kind."""

    vocabulary: list[str]
    weights: np.ndarray
    random: np.random.Generator

    @classmethod
    def make(cls) -> Corpus:
        random = np.random.default_rng(SEED)
        letters = np.array([*"aeioulnrst"])
        vocabulary = sorted({"".join(random.choice(letters, 7)) for _ in range(4_000)})
        weights = 1 / np.arange(10, len(vocabulary) + 10)
        return cls(vocabulary, weights / weights.sum(), random)

    def text(self, words: int) -> str:
        return " ".join(self.random.choice(self.vocabulary, words, p=self.weights))

    def vector(self) -> list[float]:
        return self.random.standard_normal(WIDTH).astype(np.float32).tolist()

    def batches(self) -> Iterator[list[JsonObject]]:
        """Every record has the word `always`; 1, 10 and 1,000 of them have a mark, spread over all."""
        steps = {mark: RECORDS // matching for mark, matching in MATCHING.items()}
        for start in range(0, RECORDS, BATCH):
            batch: list[JsonObject] = []
            for n in range(start, min(start + BATCH, RECORDS)):
                marks: JsonObject = {
                    mark: True for mark, step in steps.items() if n % step == 0 and n // step < MATCHING[mark]
                }
                said = {"id": f"r{n}", "content": f"always {self.text(20)}", "session": f"s{n // 50}"}
                batch.append({**said, "role": "user", "metadata": marks, "embedding": [*self.vector()]})
            yield batch


async def fill(clients: list[Client], corpus: Corpus) -> list[float]:
    """Bring everything into each service, several batches at once; the seconds that each was busy for."""
    room = asyncio.Semaphore(AT_ONCE)
    ended = [0.0 for _ in clients]
    begun = time.perf_counter()

    async def bring(at: int, batch: list[JsonObject]) -> None:
        await clients[at].call("memory/remember", {"records": [*batch], "transfer": True}, timeout=300)
        ended[at] = time.perf_counter() - begun

    async def both(batch: list[JsonObject]) -> None:
        try:
            await asyncio.gather(*(bring(at, batch) for at in range(len(clients))))
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        for batch in corpus.batches():
            await room.acquire()
            group.create_task(both(batch))
    return ended


async def until_settled(bare: psycopg.AsyncConnection) -> float:
    """Wait until the service has counted words and, if so many vectors are worth one, built their index."""
    begun = time.perf_counter()
    indexed, counted = RECORDS * WIDTH < WORTH, False
    while not (indexed and counted) and time.perf_counter() - begun < SETTLE_SECONDS:
        await asyncio.sleep(1)
        counting = await bare.execute(b"SELECT documents FROM episodic.corpus")
        row = await counting.fetchone()
        counted = row is not None and row[0] >= 0.95 * RECORDS
        building = await bare.execute(
            b"SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
            b" WHERE relname LIKE 'vectors\\_cosine%' AND indisvalid"
        )
        indexed = indexed or await building.fetchone() is not None
    return time.perf_counter() - begun


async def timed(ask: Callable[[], Awaitable[int]], expected: int) -> str:
    """p50 and p95 in milliseconds; a wrong number of records ends the benchmark."""
    taken: list[float] = []
    for _ in range(ROUNDS + WARM):
        begun = time.perf_counter()
        found = await ask()
        taken.append((time.perf_counter() - begun) * 1e3)
        if found != expected:
            raise SystemExit(f"{found} records where {expected} match")
    p95 = statistics.quantiles(taken[WARM:], n=20)[-1]
    return f"{statistics.median(taken[WARM:]):8.1f} {p95:7.1f}"


def recall(client: Client, corpus: Corpus, kind: str, mark: str | None) -> Callable[[], Awaitable[int]]:
    async def ask() -> int:
        result = await client.recall(
            f"always {corpus.text(3)}" if kind in ("words", "both") else None,
            embedding=corpus.vector() if kind in ("vector", "both") else None,
            where=None if mark is None else {mark: True},
            limit=LIMIT,
            touch=False,
        )
        return len(cast("list[JsonObject]", result["records"]))

    return ask


def by_hand(
    bare: psycopg.AsyncConnection, corpus: Corpus, kind: str, mark: str | None
) -> Callable[[], Awaitable[int]]:
    where = "TRUE" if mark is None else f"tags @> '{{\"{mark}\": true}}'"
    depth = 100 if kind == "both" else LIMIT
    near, words = (part.format(filter=where, depth=depth) for part in (NEAR, WORDS))
    ranked = {"vector": near, "words": words, "both": FUSED.format(near=near, words=words)}
    sql = NEWEST.format(filter=where) if kind == "neither" else FOUND.format(ranked=ranked[kind])

    async def ask() -> int:
        values = {
            "words": " | ".join(["always", *corpus.text(3).split()]),
            "vector": str(corpus.vector()),
        }
        return len(await (await bare.execute(sql.encode(), values)).fetchall())

    return ask


async def measure(running: Running) -> None:
    corpus = Corpus.make()
    token = (running.data / "token").read_text().strip()
    socket = next((running.data / "postgres").rglob(".s.PGSQL.*"), None)
    if socket is None:
        raise SystemExit("the socket of Postgres was not found")
    async with (
        Client.http(running.urls["episodic"], token=token, timeout=300) as episodic,
        Client.http(running.urls["semantic"], token=token, timeout=300) as semantic,
        await psycopg.AsyncConnection.connect(database(socket), autocommit=True) as bare,
    ):
        brought = await fill([episodic, semantic], corpus)
        rates = ", ".join(f"{RECORDS / seconds:.0f} a second" for seconds in brought)
        print(f"{RECORDS:,} records of {WIDTH} numbers into episodic and semantic: {rates}")
        print(f"waited {await until_settled(bare):.0f} s for statistics and the index of vectors")
        begun = time.perf_counter()
        await bare.execute(BARE.encode())
        await bare.execute(b"SET search_path = bench, public")
        await bare.execute(b"SET hnsw.iterative_scan = strict_order")
        print(f"plain table made in {time.perf_counter() - begun:.0f} s")
        print(f"{'':22}{'episodic p50, p95':>18}{'SQL by hand':>18}{'semantic':>18}   (ms)")
        for kind in KINDS:
            for mark, matching in [*MATCHING.items(), (None, RECORDS)]:
                expected = min(LIMIT, matching)
                cells = [
                    await timed(recall(episodic, corpus, kind, mark), expected),
                    await timed(by_hand(bare, corpus, kind, mark), expected),
                    await timed(recall(semantic, corpus, kind, mark), expected),
                ]
                name = "no filter" if mark is None else f"{matching:,} match"
                print(f"{kind:9}{name:13}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
    print("peak memory, MB:", running.memory())


def database(socket: Path) -> str:
    """The federation's own database, behind a socket."""
    return f"host={socket.parent} user=a2m dbname=postgres"


def main() -> None:
    with federation() as running:
        asyncio.run(measure(running))


if __name__ == "__main__":
    main()
