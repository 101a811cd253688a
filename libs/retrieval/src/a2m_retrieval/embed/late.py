"""Token vectors for late interaction (Khattab and Zaharia, 2020), small enough to be kept with a record.

A state is kept in two bits a number: of the values that a number of a random unit vector takes, the four that
stand for their quarters are close enough. Packed, a text of 30 tokens takes 4 kB.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy

from a2m_retrieval.embed import terms as sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 2
WITHOUT_TERMS = 1
"""The format now, with the terms of a text before its tokens, and that of texts whose terms are not known."""
LEVELS = (-1.5, -0.5, 0.5, 1.5)
"""What two bits stand for, in standard deviations of a number of a random unit vector."""

HEADER = 5
ID = 2

PRESENT, ABSENT = 0.65, 0.25
"""Similarity of a query's token to the nearest of a text that holds the same one, and of one that does not.

Means over questions on conversations; they stand in for a text whose states were not kept.
"""

UNSEEN = 0.25
"""Where a text whose states were not kept stands among the others by a token that it does not hold: such a
share of them is farther. Nothing is known of it, so that it must not pass for nearer than what was seen."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text: their `ids` in the model's vocabulary and, where known, their unit `states`.

    Of shapes (tokens,) and (tokens, width). `terms` are what the text is about, where that is known.
    """

    ids: NDArray[numpy.uint16]
    states: NDArray[numpy.float32] | None = None
    terms: sparse.Terms | None = None

    def packed(self, model: str) -> str:
        """As text, to be kept with a record; raises `ValueError` without states."""
        if self.states is None:
            raise ValueError("only the ids of these tokens are known")
        scaled = self.states * numpy.float32(self.states.shape[1] ** 0.5)
        codes = numpy.zeros(scaled.shape, numpy.uint8)
        for bound in (-1.0, 0.0, 1.0):
            codes += scaled > bound
        four = codes.reshape(len(self.ids), -1, 4)
        bits = four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6
        front = _header(FORMAT if self.terms is not None else WITHOUT_TERMS, model)
        if self.terms is not None:
            front += self.terms.packed()
        return base64.b64encode(front + self.ids.astype("<u2").tobytes() + bits.tobytes()).decode()


def unpacked(features: str, model: str, width: int) -> Tokens | None:
    """What `Tokens.packed` made with the same model; None for what another made.

    Terms are left out where they were not kept, or were weighed by another model than now.
    """
    try:
        held = base64.b64decode(features, validate=True)
        front, held = held[:HEADER], held[HEADER:]
        terms, size = sparse.unpacked(held) if front == _header(FORMAT, model) else (None, 0)
    except (binascii.Error, ValueError):
        return None
    each = ID + width // 4
    count, rest = divmod(len(held) - size, each)
    if rest or count < 1 or front not in (_header(FORMAT, model), _header(WITHOUT_TERMS, model)):
        return None
    ids = numpy.frombuffer(held, "<u2", count, size)
    bits = numpy.frombuffer(held, numpy.uint8, count * width // 4, size + ID * count)
    return Tokens(ids, _table(width)[bits].reshape(count, width), terms)


def most_similar(query: Tokens, documents: Sequence[Tokens]) -> NDArray[numpy.float32]:
    """The similarity of each of a query's tokens to the nearest in each document: (documents, tokens).

    The query's states must be known. Of a document without, whether it holds the same tokens has to do: NaN
    stands for a token that it does not hold, until `filled` says what that is worth.
    """
    assert query.states is not None, "a query is encoded before it is compared"  # noqa: S101 the caller's part
    nearest = numpy.full((len(documents), len(query.ids)), numpy.nan, numpy.float32)
    whole = [at for at, document in enumerate(documents) if document.states is not None]
    if whole:
        states = numpy.concatenate([s for at in whole if (s := documents[at].states) is not None])
        starts = numpy.cumsum([0] + [len(documents[at].ids) for at in whole[:-1]])
        nearest[whole] = numpy.maximum.reduceat(states @ query.states.T, starts, axis=0)
    for at, document in enumerate(documents):
        if document.states is None:
            nearest[at, numpy.isin(query.ids, document.ids)] = PRESENT
    return nearest


def filled(nearest: NDArray[numpy.float32], absent: float = ABSENT) -> NDArray[numpy.float32]:
    """`most_similar` of all documents, with a number for what is not known: at most `absent`."""
    seen = nearest[~numpy.isnan(nearest).any(axis=1)]
    worth = numpy.full(nearest.shape[1], absent, numpy.float32)
    if len(seen):
        worth = numpy.minimum(worth, numpy.quantile(seen, UNSEEN, axis=0).astype(numpy.float32))
    return numpy.where(numpy.isnan(nearest), worth, nearest)


def _header(form: int, model: str) -> bytes:
    return bytes([form]) + hashlib.blake2b(model.encode(), digest_size=HEADER - 1).digest()


@cache
def _table(width: int) -> NDArray[numpy.float32]:
    """What each byte stands for: four numbers."""
    bytes_ = numpy.arange(256)[:, None]
    levels = numpy.array(LEVELS, numpy.float32) / numpy.float32(width**0.5)
    return levels[(bytes_ >> numpy.array([0, 2, 4, 6])) & 3]
