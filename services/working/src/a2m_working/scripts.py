"""Lua scripts, which are files beside this module; each is its parts, one after the other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

_PARTS = {
    "write": ("list", "ledger", "drafts", "write"),
    "transfer": ("list", "ledger", "drafts", "transfer"),
    "remove": ("list", "ledger", "remove"),
    "bury": ("list", "ledger", "bury"),
    "count": ("list", "ledger", "count"),
    "settle": ("list", "ledger", "settle"),
    "judge": ("list", "ledger", "judge"),
    "page": ("rows", "order", "page"),
    "graves": ("rows", "order", "graves"),
    "outline": ("rows", "order", "outline"),
    "read": ("rows", "read"),
    "weigh": ("rows", "weigh"),
    "fetch": ("rows", "fetch"),
    "sessions": ("rows", "sessions"),
    "claim": ("claim",),
    "listing": ("list", "listing"),
    "fence": ("list", "ledger", "fence"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the digest by which a server that has seen it knows it."""

    text: str
    sha: str


def load_scripts() -> dict[str, Script]:
    """Every script by name."""
    folder = resources.files(__package__ or __name__) / "lua"
    scripts: dict[str, Script] = {}
    for name, parts in _PARTS.items():
        text = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        scripts[name] = Script(text, digest)
    return scripts
