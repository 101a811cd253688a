"""What every `TierStore` must do, as tests: a store's own tests subclass `TierContract`."""

from a2m_server.contract.embedding import EmbeddingContract
from a2m_server.contract.judging import JudgingContract
from a2m_server.contract.languages import LanguageContract
from a2m_server.contract.moves import MoveContract
from a2m_server.contract.reads import ReadContract
from a2m_server.contract.remnants import RemnantContract
from a2m_server.contract.samples import FIELDS, HOSTILE, draft, moved, name, where, within
from a2m_server.contract.writes import WriteContract

__all__ = [
    "FIELDS",
    "HOSTILE",
    "EmbeddingContract",
    "TierContract",
    "draft",
    "moved",
    "name",
    "where",
    "within",
]


class TierContract(
    WriteContract, ReadContract, MoveContract, JudgingContract, RemnantContract, LanguageContract
):
    """Subclass it and give a fixture `store` that yields an open, possibly already used, `TierStore`."""
