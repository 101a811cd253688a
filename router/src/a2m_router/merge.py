"""Answers of several tiers made into one: pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from a2m_protocol.types import Record
from a2m_retrieval.fuse import reciprocal_rank_fusion
from a2m_retrieval.lexical import bm25
from a2m_retrieval.text import index_terms, query_terms, said
from a2m_router.policy import newest
from a2m_server.values import Entry, SessionInfo

READ = 10_000
"""Characters of a candidate that are looked at for the words of a query."""


def distinct(answers: Mapping[str, Sequence[Record]]) -> dict[str, Record]:
    """Each record once, by id, with its tier; of two copies in mid-move the newest."""
    found: dict[str, Record] = {}
    for tier, records in answers.items():
        for record in records:
            placed = record.model_copy(update={"tier": tier})
            held = found.get(record.id)
            found[record.id] = placed if held is None else newest(held, placed)
    return found


def in_order(answers: Mapping[str, Sequence[Record]], limit: int | None) -> list[Record]:
    """A timeline: by `seq` then id, the newest `limit` of them."""
    merged = sorted(distinct(answers).values(), key=lambda r: (r.seq, r.id))
    return merged if limit is None else merged[max(0, len(merged) - limit) :]


def by_recency(answers: Mapping[str, Sequence[Record]], limit: int) -> list[Record]:
    """Newest first; the score is that of the rank."""
    merged = sorted(distinct(answers).values(), key=lambda r: (-r.seq, r.id))[:limit]
    return [record.model_copy(update={"score": 1 / (1 + rank)}) for rank, record in enumerate(merged)]


def by_rank(answers: Mapping[str, Sequence[Record]], limit: int | None, text: str | None) -> list[Record]:
    """Reciprocal rank fusion of the tiers' rankings; no tier's score is compared with another's.

    The first of every tier would tie, so the words of `text` rank all candidates once more, together.
    """
    found = distinct(answers)
    rankings = [[record.id for record in records] for records in answers.values() if records]
    if text is not None and len(rankings) > 1:
        rankings.append(_by_words(found, text))
    scores = reciprocal_rank_fusion(rankings)
    return [found[i].model_copy(update={"score": score}) for i, score in list(scores.items())[:limit]]


def _by_words(found: Mapping[str, Record], text: str) -> list[str]:
    """Candidates by BM25 over the candidates, best first; those without a word of the query are left out."""
    ids = [*found]
    said_by = [said(found[i].content[:READ], found[i].metadata) for i in ids]
    scores = bm25([index_terms(words) for words in said_by], query_terms(text))
    ranked = sorted(zip(scores, ids, strict=True), key=lambda pair: -pair[0])
    return [record_id for score, record_id in ranked if score > 0]


def sessions(answers: Mapping[str, Iterable[SessionInfo]]) -> list[SessionInfo]:
    """Each owner's session once, its records added up over the tiers."""
    tiers: dict[tuple[str, str | None], dict[str, SessionInfo]] = defaultdict(dict)
    for tier, infos in answers.items():
        for info in infos:
            tiers[info.session, info.owner][tier] = info
    return [
        SessionInfo(
            session=session,
            owner=owner,
            records=sum(info.records for info in parts.values()),
            opened_at=min(info.opened_at for info in parts.values()),
            touched_at=max(info.touched_at for info in parts.values()),
            tiers={tier: info.records for tier, info in parts.items()},
        )
        for (session, owner), parts in sorted(tiers.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]


def furthest(answers: Mapping[str, Sequence[Entry]]) -> dict[str, list[Entry]]:
    """Entries by the tier that holds them; of two copies, where the further moved one is."""
    best: dict[str, tuple[str, Entry]] = {}
    for tier, entries in answers.items():
        for entry in entries:
            if entry.id not in best or entry.moves > best[entry.id][1].moves:
                best[entry.id] = (tier, entry)
    held: dict[str, list[Entry]] = {}
    for tier, entry in best.values():
        held.setdefault(tier, []).append(entry)
    return held
