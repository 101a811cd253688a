"""Learned sparse weights (SPLADE: Formal et al., 2021), small enough to be kept with a record.

What a text is about, in words of BERT's vocabulary: such as it holds, and others that it does not. Three
bytes each are kept of the heaviest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL = "splade-tiny@1"
MOST = 128
"""How many terms of a text count. A turn of a conversation has about 100; with 64 a little less is found."""
STEP = 1 / 64
"""What a byte counts in: weights are logarithms, and hardly one is above 3."""

HELD, ABSENT = 1.25, 0.1
"""The weight of a term in a text that holds it, and in one that does not, where its weights were not kept.

Means over questions on conversations.
"""

HEADER = 5
EACH = 3
IDS = 1 << 16


@dataclass(frozen=True, slots=True)
class Terms:
    """What a text is about: `ids` in the vocabulary, ascending, and `weights` above 0; both (terms,)."""

    ids: NDArray[numpy.uint16]
    weights: NDArray[numpy.float32]

    def packed(self) -> bytes:
        """Header, ids, weights; rounded."""
        steps = numpy.clip(numpy.rint(self.weights / STEP), 1, 255).astype(numpy.uint8)
        return _tag() + bytes([len(self.ids)]) + self.ids.astype("<u2").tobytes() + steps.tobytes()


def heaviest(weights: NDArray[numpy.float32]) -> Terms:
    """Of the weight of each entry of the vocabulary the `MOST` that count."""
    ids = numpy.flatnonzero(weights >= STEP)
    if len(ids) > MOST:
        ids = numpy.sort(ids[numpy.argpartition(-weights[ids], MOST)[:MOST]])
    return Terms(ids.astype(numpy.uint16), weights[ids])


def unpacked(held: bytes) -> tuple[Terms | None, int]:
    """What `Terms.packed` put at the beginning, None if of another model; and how many bytes it takes.

    Raises `ValueError` for what `packed` does not make.
    """
    count = held[HEADER - 1] if len(held) >= HEADER else 0
    size = HEADER + EACH * count
    if not HEADER <= len(held) >= size or count > MOST:
        raise ValueError("no weights of terms")
    if held[: HEADER - 1] != _tag():
        return None, size
    ids = numpy.frombuffer(held, "<u2", count, HEADER)
    steps = numpy.frombuffer(held, numpy.uint8, count, HEADER + 2 * count)
    if (ids[1:] <= ids[:-1]).any() or not steps.all():
        raise ValueError("no weights of terms")
    return Terms(ids, steps * numpy.float32(STEP)), size


def weights_of(
    query: Terms, documents: Sequence[tuple[Terms | None, NDArray[numpy.uint16]]]
) -> NDArray[numpy.float32]:
    """What each of a query's terms weighs in each document: (documents, terms).

    Of a document whose terms were not kept, whether its tokens are the same has to do: such a term weighs
    `HELD`, and NaN stands for one that it does not hold.
    """
    found = numpy.zeros((len(documents), len(query.ids)), numpy.float32)
    column = numpy.full(IDS, -1)
    column[query.ids] = numpy.arange(len(query.ids))
    for row, (terms, tokens) in enumerate(documents):
        if terms is None:
            found[row] = numpy.where(numpy.isin(query.ids, tokens), HELD, numpy.nan)
        else:
            at = column[terms.ids]
            found[row, at[at >= 0]] = terms.weights[at >= 0]
    return found


def _tag() -> bytes:
    return hashlib.blake2b(MODEL.encode(), digest_size=HEADER - 1).digest()
