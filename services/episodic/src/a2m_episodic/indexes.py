"""The index of vectors: its operators, its type, and building it without stopping writers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from a2m_episodic.database import Connection, rows
from a2m_episodic.queries import query
from a2m_retrieval.metric import Metric

log = logging.getLogger(__name__)

MAX_FULL = 2_000
"""The widest vector that an HNSW index holds in full precision; beyond it, numbers of 16 bits."""


WORTH = 4_000_000
"""So many numbers in all vectors together (10,000 vectors of 384) are worth an index: comparing all of them
takes about 10 ms, while an index makes every write several times dearer."""


MOST_MEMORY = 512 * 1024
"""Kilobytes that a build may use: one whose graph does not fit takes many times as long."""


@dataclass(frozen=True, slots=True)
class Operator:
    sign: str
    family: str


OPERATORS: Mapping[Metric, Operator] = {
    "cosine": Operator("<=>", "cosine_ops"),
    "dot": Operator("<#>", "ip_ops"),
    "l2": Operator("<->", "l2_ops"),
}


def index_type(dimensions: int) -> str:
    """The type to which the index casts vectors."""
    return f"{'vector' if dimensions <= MAX_FULL else 'halfvec'}({dimensions})"


def index_name(metric: Metric, dimensions: int) -> str:
    return f"vectors_{metric}_{dimensions}"


async def is_indexed(connection: Connection, metric: Metric, dimensions: int) -> bool:
    """Whether the index is there and whole."""
    name = index_name(metric, dimensions)
    [state] = await rows(connection, query("maintain", "index_state"), {"name": name})
    return state["valid"] is True


async def build_index(connection: Connection, metric: Metric, dimensions: int) -> bool:
    """Build the HNSW index once it pays, if it is missing or was left half built; whether it was.

    Searches are exact until it is there. Only one process should do this at a time.
    """
    if await is_indexed(connection, metric, dimensions):
        return False
    few = {"limit": max(1, WORTH // dimensions)}
    [held] = await rows(connection, query("maintain", "count_vectors"), few)
    if held["vectors"] < few["limit"]:
        return False
    name = index_name(metric, dimensions)
    await connection.execute(query("maintain", "drop_index", name=name).encode())
    kind = index_type(dimensions)
    family = f"{kind.partition('(')[0]}_{OPERATORS[metric].family}"
    statement = query("maintain", "build_index", name=name, type=kind, family=family)
    memory = await rows(connection, query("maintain", "build_memory"), {"most": MOST_MEMORY})
    log.info("building an index of vectors with %s kB", memory[0]["kilobytes"])
    await connection.execute(statement.encode())
    return True
