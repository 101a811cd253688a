"""The rerank: what a model saw of a query held against what it saw of each candidate, on one scale.

The evidence of a candidate is how near its tokens come to the query's (`late.most_similar`, each token of
the query weighted by how much it tells) and, a little, what the two are about (`terms.weights_of`) and the
place that its own store gave it. A record's session is evidence too: of a conversation that is about the
question, more than one turn is near to it.

The weights were chosen on conversations and on documents; `benchmarks/recall.py` prints what they are worth,
and what weights chosen without a conversation are worth on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy

from a2m_retrieval.embed.late import Tokens, filled, most_similar
from a2m_retrieval.embed.terms import ABSENT, weights_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


BLOCK = 32
LEAST = 0.25
"""By which share of what a query has in common with itself candidates must differ for full evidence."""


@dataclass(frozen=True, slots=True)
class Weights:
    """`place` of the evidence is that of the store's order, `sparse` that of the terms, the rest the tokens'.

    `session` is how much the best `together` of a session count beside a record's own evidence, and `halving`
    the place at which that of a store's order is half of that of its first.
    """

    place: float = 0.1
    sparse: float = 0.1
    session: float = 0.9
    together: int = 2
    halving: float = 10.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is ranked: its tokens, its place in its store's order (the first is 0), and its session."""

    tokens: Tokens
    place: int
    session: Hashable | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for a candidate: `nearness`, `sparse`, `place`, `session`, and all in `score`; in 0..1.

    `sparse` is None, and does not count, where the terms of no candidate are known.
    """

    nearness: float
    sparse: float | None
    place: float
    session: float
    score: float


def rerank(
    query: Tokens, candidates: Iterable[Candidate], weights: Weights | None = None
) -> list[Evidence] | None:
    """The evidence for each candidate, in the order given; None where a query tells nothing to rank by.

    Candidates are taken a few at a time, and their states let go: those of a long text are half a megabyte.
    """
    nearest: list[NDArray[numpy.float32]] = []
    terms: list[NDArray[numpy.float32]] = []
    known: list[bool] = []
    held = numpy.zeros(len(query.ids))
    places: list[int] = []
    sessions: list[Hashable | None] = []
    for block in _batched(candidates, BLOCK):
        nearest.append(most_similar(query, [candidate.tokens for candidate in block]))
        if query.terms is not None:
            terms.append(weights_of(query.terms, [(c.tokens.terms, c.tokens.ids) for c in block]))
        for candidate in block:
            known.append(candidate.tokens.terms is not None)
            held += numpy.isin(query.ids, candidate.tokens.ids)
            places.append(candidate.place)
            sessions.append(candidate.session)
    if not places or not (telling := _telling(query, held, len(places))).any():
        return None
    near = _spread(filled(numpy.concatenate(nearest)) @ telling)
    sparse = None
    if query.terms is not None and any(known):
        sparse = _spread(*_common(query.terms.weights, numpy.concatenate(terms), numpy.array(known)))
    return weighed(near, sparse, places, sessions, weights or Weights())


def weighed(
    nearness: Sequence[float],
    sparse: Sequence[float] | None,
    places: Sequence[int],
    sessions: Sequence[Hashable | None],
    weights: Weights,
) -> list[Evidence]:
    """Evidence from the nearness of each candidate and its terms, in 0..1, its place and its session.

    Without `sparse` its share is the nearness's.
    """
    near = numpy.array(nearness)
    about = near if sparse is None else numpy.array(sparse)
    ordered = weights.halving / (weights.halving + numpy.array(places))
    seen = (1 - weights.place - weights.sparse) * near + weights.sparse * about
    own = seen + weights.place * ordered
    around = _around(sessions, own, weights.together)
    scores = (own + weights.session * around) / (1 + weights.session)
    shown = [None] * len(near) if sparse is None else sparse
    columns = (nearness, shown, ordered.tolist(), around.tolist(), scores.tolist())
    return [Evidence(*row) for row in zip(*columns, strict=True)]


def _spread(values: NDArray[numpy.floating], least: float = 0.0) -> list[float]:
    """The values from 0 on, up to 1 where the most and the least differ by `least`."""
    reach = max(values.max() - values.min(), least)
    return ((values - values.min()) / reach if reach > 0 else values * 0).tolist()


def _common(
    query: NDArray[numpy.float32], weights: NDArray[numpy.float32], known: NDArray[numpy.bool_]
) -> tuple[NDArray[numpy.float32], float]:
    """What each candidate has in common with the query: the products of their weights, rare terms the more.

    How rare a term is among the candidates is told by those whose terms are known. Beside it, the difference
    for full evidence.
    """
    holding = (weights[known] > 0).sum(axis=0)
    rare = numpy.log((known.sum() + 1) / (holding + 0.5)) / numpy.log(known.sum() + 1)
    telling = query * numpy.maximum(rare, 0)
    return filled(weights, ABSENT) @ telling, LEAST * float(query @ telling)


def _telling(query: Tokens, held: NDArray[numpy.float64], candidates: int) -> NDArray[numpy.float64]:
    """How much each token of the query tells candidates apart: rare among them, and rare in the language.

    `held` is how many candidates hold it. BERT's vocabulary lists whole words by how frequent they were in
    what it was made of, so that the logarithm of a token's place in it stands for its rarity (Zipf's law).
    What comes before is no word: marks, single characters, and the tokens that every text has.
    """
    ids = query.ids.astype(numpy.int64)
    here = numpy.log((candidates + 1) / (held + 0.5)) / numpy.log(candidates + 1)
    general = numpy.log(numpy.maximum(ids - FIRST_WORD, 1) + 1) / numpy.log(LAST_WORD - FIRST_WORD)
    return numpy.where(ids > FIRST_WORD, numpy.maximum(here, 0) + general, 0.0)


FIRST_WORD, LAST_WORD = 1_995, 30_000


def _batched(candidates: Iterable[Candidate], size: int) -> Iterator[list[Candidate]]:
    taken = iter(candidates)
    while block := [*islice(taken, size)]:
        yield block


def _around(
    sessions: Sequence[Hashable | None], own: NDArray[numpy.float64], together: int
) -> NDArray[numpy.float64]:
    """The mean evidence of the best of each record's session; of a record without one, its own."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for at, session in enumerate(sessions):
        if session is not None:
            members[session].append(at)
    around = own.copy()
    for places in members.values():
        around[places] = numpy.sort(own[places])[::-1][:together].mean()
    return around
