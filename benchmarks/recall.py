"""How well a federation finds: real questions over the router, beside one flat index of the same texts.

    python benchmarks/recall.py [--conversations N] [--scifact] [--placements]

Each conversation is replayed with its times, session by session, each closed when it ends; then every
question is asked. The flat indexes are of the same texts, in this process: BM25, the embedder alone, and both
fused.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy
from federated import Running, federation

from a2m_protocol.client import Client
from a2m_protocol.errors import Json
from a2m_protocol.types import Draft
from a2m_retrieval.embed.local import LocalEmbedder
from a2m_retrieval.fuse import reciprocal_rank_fusion
from a2m_retrieval.lexical import bm25
from a2m_retrieval.rerank import Weights, weighed
from a2m_retrieval.text import index_terms, query_terms, said
from a2m_router.vectors import text_of

DATA = Path(os.environ.get("A2M_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
DEPTH = 20
CUTS = (5, 10, 20)
AT_ONCE = 2
GRID = [
    Weights(place=place, sparse=sparse, session=session, together=together)
    for place, sparse, session, together in itertools.product(
        (0.0, 0.1, 0.2), (0.0, 0.2, 0.3, 0.4), (0.6, 0.9, 1.2), (2, 3)
    )
]
ROOMY = """\
name: roomy
tiers:
  - {name: working, kind: working, capacity: 5000, per_session: true, spill_to: episodic}
  - {name: episodic, kind: episodic}
  - {name: semantic, kind: semantic}
  - {name: procedural, kind: procedural}
"""

Figures = dict[str, float]


@dataclass(frozen=True)
class Question:
    text: str
    evidence: frozenset[str]
    category: str = ""


@dataclass
class Corpus:
    """Texts and questions about them; `sessions` are record ids by session, in order, where there are any."""

    name: str
    drafts: list[dict[str, Any]]
    questions: list[Question]

    @property
    def texts(self) -> list[str]:
        return [text_of(Draft.model_validate(draft)) for draft in self.drafts]

    @property
    def sessions(self) -> list[str]:
        return [*dict.fromkeys(d["session"] for d in self.drafts if "session" in d)]


@dataclass
class Scores:
    """Figures by method, one for each question, with the question's corpus and category."""

    rows: dict[str, list[Figures]] = field(default_factory=lambda: defaultdict(list))
    places: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def mean(self, method: str, wanted: Iterable[int] | None = None) -> Figures:
        rows = self.rows[method]
        chosen = [rows[at] for at in (range(len(rows)) if wanted is None else wanted)]
        return {name: statistics.fmean(row[name] for row in chosen) for name in chosen[0]}


def figures(ranked: Sequence[str], evidence: frozenset[str]) -> Figures:
    """Recall at the cuts, the reciprocal rank of the first, and nDCG@10."""
    ranks = [at for at, record_id in enumerate(ranked) if record_id in evidence]
    gain = math.fsum(1 / math.log2(at + 2) for at in ranks if at < 10)
    ideal = math.fsum(1 / math.log2(at + 2) for at in range(min(10, len(evidence))))
    found = {f"R@{cut}": sum(at < cut for at in ranks) / len(evidence) for cut in CUTS}
    return found | {"MRR": 1 / (1 + ranks[0]) if ranks else 0.0, "nDCG@10": gain / ideal}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def conversations(most: int) -> list[Corpus]:
    found: list[Corpus] = []
    for path in sorted((DATA / "locomo").glob("*.turns.jsonl"))[:most]:
        drafts: list[dict[str, Any]] = [
            {
                "id": turn["id"],
                "content": turn["content"],
                "role": turn["role"],
                "session": turn["session"],
                "created_at": turn["created_at"],
                "metadata": {"speaker": turn["speaker"]},
                "owner": turn["conversation"],
            }
            for turn in lines(path)
        ]
        asked = lines(path.with_name(path.name.replace(".turns.", ".questions.")))
        questions = [Question(q["question"], frozenset(q["evidence"]), f"{q['category']}") for q in asked]
        found.append(Corpus(str(drafts[0]["owner"]), drafts, questions))
    return found


def scifact() -> Corpus:
    folder = DATA / "scifact"
    drafts = [
        {
            "id": d["id"],
            "content": f"{d['title']} {d['content']}",
            "owner": "scifact",
            "tier": "semantic",
            "created_at": "2020-01-01T00:00:00.000Z",
        }
        for d in lines(folder / "documents.jsonl")
    ]
    questions = [Question(q["question"], frozenset(q["evidence"])) for q in lines(folder / "questions.jsonl")]
    return Corpus("scifact", drafts, questions)


class Flat:
    """One index of all texts of a corpus, in this process: of what tiers index, and of the dates as well."""

    def __init__(self, corpus: Corpus, vectors: Sequence[Sequence[float]]) -> None:
        self._ids = [draft["id"] for draft in corpus.drafts]
        plain = [said(draft["content"], draft.get("metadata")) for draft in corpus.drafts]
        self._terms = {
            "": [index_terms(text) for text in plain],
            ", dated": [index_terms(text) for text in corpus.texts],
        }
        self._vectors = numpy.array(vectors, numpy.float32)

    def rankings(self, question: str, vector: Sequence[float]) -> dict[str, list[str]]:
        near = self._vectors @ numpy.array(vector, numpy.float32)
        dense = [self._ids[at] for at in numpy.argsort(-near, kind="stable")]
        found = {"flat embedder": dense}
        for kind, terms in self._terms.items():
            words = bm25(terms, query_terms(question))
            order = sorted(range(len(words)), key=lambda at: -words[at])
            lexical = [self._ids[at] for at in order if words[at]]
            found["flat BM25" + kind] = lexical
            found["flat RRF" + kind] = [*reciprocal_rank_fusion([lexical, dense])]
        return found


async def load(running: Running, corpus: Corpus, *, close: Iterable[str] | None = None) -> None:
    """Write a corpus as it was, and close its sessions (or those named)."""
    async with Client.http(running.url, timeout=600) as client:
        for at in range(0, len(corpus.drafts), 100):
            await client.remember(corpus.drafts[at : at + 100], transfer=True)
        for session in corpus.sessions if close is None else close:
            await client.close_session(session, owner=corpus.drafts[0]["owner"])
    await embedded(running)


async def embedded(running: Running) -> None:
    """Wait until everything has its vector."""
    async with httpx.AsyncClient() as client:
        quiet = 0
        while quiet < 5:
            told = (await client.get(f"{running.url}/metrics")).text
            waiting = [
                float(line.split()[-1])
                for line in told.splitlines()
                if line.startswith(("a2m_embedding_waiting", "a2m_spills_waiting"))
            ]
            quiet = quiet + 1 if not any(waiting) else 0
            await asyncio.sleep(0.3)


async def vectors_of(running: Running, corpus: Corpus) -> list[list[float]]:
    """The vectors that the federation has made of the texts of a corpus."""
    found: dict[str, list[float]] = {}
    async with Client.http(running.url, timeout=60) as client:
        ids: list[str] = [draft["id"] for draft in corpus.drafts]
        for at in range(0, len(ids), 200):
            told: Any = await client.call("memory/read", {"ids": list[Json](ids[at : at + 200])})
            found |= {record["id"]: record["embedding"] for record in told["records"]}
    return [found[record_id] for record_id in ids]


async def ask(
    running: Running, corpus: Corpus, limit: int = DEPTH
) -> list[tuple[list[dict[str, Any]], dict[str, Any], float]]:
    """Of each question the records that a recall gives, how they were ranked, and its seconds."""
    answers: dict[int, tuple[list[dict[str, Any]], dict[str, Any], float]] = {}
    waiting = iter(enumerate(corpus.questions))
    owner = corpus.drafts[0]["owner"]

    async def one() -> None:
        async with Client.http(running.url, timeout=60) as client:
            for at, question in waiting:
                begun = time.perf_counter()
                told: Any = await client.recall(
                    question.text, owner=owner, limit=limit, explain=True, touch=False
                )
                answers[at] = (told["records"], told, time.perf_counter() - begun)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    return [answers[at] for at in range(len(corpus.questions))]


async def fused_only(
    running: Running, corpus: Corpus, vectors: Sequence[Sequence[float]], model: str
) -> list[list[str]]:
    """The same questions by plain rank fusion of what the tiers that search answer by themselves."""
    found: list[list[str]] = []
    owner = corpus.drafts[0]["owner"]
    tiers = [running.urls[name] for name in ("episodic", "semantic")]
    token = (running.data / "token").read_text().strip()
    clients = [Client.http(url, token=token, timeout=60) for url in tiers]
    for client in clients:
        await client.__aenter__()
    for question, vector in zip(corpus.questions, vectors, strict=True):
        told: list[Any] = await asyncio.gather(
            *(
                c.recall(
                    question.text,
                    owner=owner,
                    limit=100,
                    touch=False,
                    embedding=vector,
                    embedding_model=model,
                )
                for c in clients
            )
        )
        rankings = [[r["id"] for r in answer["records"]] for answer in told if answer["records"]]
        found.append([*reciprocal_rank_fusion(rankings)])
    for client in clients:
        await client.__aexit__(None, None, None)
    return found


def reweighed(told: dict[str, Any], weights: Weights) -> list[str]:
    """The ids of an explained recall as other weights would order them."""
    records = told["records"]
    parts = [told["explained"][r["id"]] for r in records]
    if not records or "nearness" not in parts[0]:
        return [r["id"] for r in records]
    near = [p["nearness"] for p in parts]
    sparse = [p["sparse"] for p in parts] if "sparse" in parts[0] else None
    places = [(p["rank"] or 1_001) - 1 for p in parts]
    evidence = weighed(near, sparse, places, [r.get("session") for r in records], weights)
    order = sorted(range(len(records)), key=lambda at: -evidence[at].score)
    return [records[at]["id"] for at in order]


def left_out(told: Mapping[str, list[tuple[Question, dict[str, Any]]]]) -> Figures:
    """The figures when each conversation is ranked by the weights that are best on all the others."""
    kept: list[Figures] = []
    table = {
        weights: {
            name: [figures(reweighed(answer, weights), q.evidence) for q, answer in asked]
            for name, asked in told.items()
        }
        for weights in GRID
    }
    for name in told:
        best = max(
            GRID,
            key=lambda w: statistics.fmean(
                row["R@10"] + row["nDCG@10"]
                for other, rows in table[w].items()
                if other != name
                for row in rows
            ),
        )
        kept += table[best][name]
        print(f"    without {name}: {best}")
    return {key: statistics.fmean(row[key] for row in kept) for key in kept[0]}


def show(name: str, row: Figures) -> None:
    print(f"  {name:34}" + "".join(f"{key} {value:.3f}  " for key, value in row.items()), flush=True)


def by_category(scores: Scores, methods: Sequence[str]) -> None:
    categories = sorted({category for _, category in scores.places})
    for category in categories:
        at = [n for n, (_, c) in enumerate(scores.places) if c == category]
        print(f"  category {category}, {len(at)} questions")
        for method in methods:
            show("  " + method, scores.mean(method, at))


def latencies(took: Sequence[tuple[dict[str, Any], float]]) -> None:
    parts: dict[str, list[float]] = defaultdict(list)
    for told, seconds in took:
        for part, value in told["took"].items():
            parts[part].append(value)
        parts["all, with HTTP"].append(seconds)
    for part, values in parts.items():
        values.sort()
        print(
            f"  {part:16} p50 {1e3 * values[len(values) // 2]:6.1f} ms"
            f"   p95 {1e3 * values[int(0.95 * len(values))]:6.1f} ms"
        )


async def conversed(most: int, embedder: LocalEmbedder) -> None:
    corpora = conversations(most)
    scores = Scores()
    told: dict[str, list[tuple[Question, dict[str, Any]]]] = {}
    took: list[tuple[dict[str, Any], float]] = []
    with federation(A2M_ROUTER_EMBEDDING__KIND="local") as running:
        for corpus in corpora:
            begun = time.perf_counter()
            await load(running, corpus)
            loaded = time.perf_counter() - begun
            flat = Flat(corpus, await vectors_of(running, corpus))
            vectors = await embedder.embed([q.text for q in corpus.questions], kind="query")
            answers = await ask(running, corpus)
            deep = await ask(running, corpus, 150)
            fused = await fused_only(running, corpus, vectors, embedder.model)
            told[corpus.name] = [(q, t) for q, (_, t, _) in zip(corpus.questions, deep, strict=True)]
            took += [(t, seconds) for _, t, seconds in answers]
            rows = zip(corpus.questions, vectors, answers, fused, strict=True)
            for question, vector, (records, _, _), plain in rows:
                ranked = flat.rankings(question.text, vector)
                ranked |= {"fusion over the tiers": plain, "router": [r["id"] for r in records]}
                for method, ids in ranked.items():
                    scores.rows[method].append(figures(ids, question.evidence))
                scores.places.append((corpus.name, question.category))
            print(f"{corpus.name}: {len(corpus.drafts)} turns in {loaded:.1f} s", flush=True)
        memory = running.memory()
    print(f"{len(scores.places)} questions over {len(corpora)} conversations")
    for method in scores.rows:
        show(method, scores.mean(method))
    by_category(scores, [*scores.rows])
    if len(told) > 1:
        print("  weights chosen without the conversation")
        show("router, left out", left_out(told))
    print(f"  ranked by: {dict(Counter(t['ranked_by'] for t, _ in took))}")
    latencies(took)
    print("  peak memory, MB:", memory)


async def placed(most: int) -> None:
    """The same with half of each conversation in semantic, and with half of it still in working."""
    corpora = conversations(most)
    for name in ("all in episodic", "half in semantic", "half in working"):
        rows: list[Figures] = []
        with federation(ROOMY, A2M_ROUTER_EMBEDDING__KIND="local") as running:
            for corpus in corpora:
                half = len(corpus.sessions) // 2 if name == "half in working" else None
                await load(running, corpus, close=corpus.sessions[:half])
                if name == "half in semantic":
                    async with Client.http(running.url, timeout=600) as client:
                        ids = [draft["id"] for draft in corpus.drafts[::2]]
                        for at in range(0, len(ids), 100):
                            await client.promote(ids[at : at + 100], "semantic", salience=0)
                answers = await ask(running, corpus)
                rows += [
                    figures([r["id"] for r in records], q.evidence)
                    for q, (records, _, _) in zip(corpus.questions, answers, strict=True)
                ]
        show(name, {key: statistics.fmean(row[key] for row in rows) for key in rows[0]})


async def documents(embedder: LocalEmbedder) -> None:
    corpus = scifact()
    scores = Scores()
    with federation(A2M_ROUTER_EMBEDDING__KIND="local") as running:
        begun = time.perf_counter()
        await load(running, corpus)
        print(f"scifact: {len(corpus.drafts)} documents in {time.perf_counter() - begun:.0f} s", flush=True)
        flat = Flat(corpus, await vectors_of(running, corpus))
        vectors = await embedder.embed([q.text for q in corpus.questions], kind="query")
        answers = await ask(running, corpus)
        for question, vector, (records, _, _) in zip(corpus.questions, vectors, answers, strict=True):
            for method, ids in (
                flat.rankings(question.text, vector) | {"router": [r["id"] for r in records]}
            ).items():
                scores.rows[method].append(figures(ids, question.evidence))
    for method in scores.rows:
        show(method, scores.mean(method))
    latencies([(told, seconds) for _, told, seconds in answers])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--conversations", type=int, default=99, help="the first so many")
    parser.add_argument(
        "--scifact", action="store_true", help="documents as well: embedding them takes minutes"
    )
    parser.add_argument(
        "--placements", action="store_true", help="over two tiers, and half in working, as well"
    )
    chosen = parser.parse_args()
    embedder = LocalEmbedder()
    await embedder.open()
    try:
        if chosen.conversations:
            await conversed(chosen.conversations, embedder)
        if chosen.placements:
            await placed(chosen.conversations)
        if chosen.scifact:
            await documents(embedder)
    finally:
        await embedder.close()


if __name__ == "__main__":
    if not DATA.exists():
        print(f"nothing to ask: no {DATA}; A2M_TEST_DATA may name a folder that holds locomo/ and scifact/")
    else:
        asyncio.run(main())
