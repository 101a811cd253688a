"""The index of vectors: its operators, its type, and building it without stopping writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from a2m_episodic.database import Connection, query, rows
from a2m_retrieval.metric import Metric

MAX_FULL = 2_000
"""The widest vector that an HNSW index holds in full precision; beyond it, numbers of 16 bits."""


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


async def build_index(connection: Connection, metric: Metric, dimensions: int) -> bool:
    """Build the HNSW index if it is missing or was left half built; whether it was.

    Searches are exact until it is there. Only one process should do this at a time.
    """
    name = index_name(metric, dimensions)
    [state] = await rows(connection, query("maintain", "index_state"), {"name": name})
    if state["valid"]:
        return False
    if state["valid"] is not None:
        await connection.execute(query("maintain", "drop_index", name=name).encode())
    kind = index_type(dimensions)
    family = f"{kind.partition('(')[0]}_{OPERATORS[metric].family}"
    statement = query("maintain", "build_index", name=name, type=kind, family=family)
    await connection.execute(b"SET statement_timeout = 0")
    await connection.execute(statement.encode())
    return True
