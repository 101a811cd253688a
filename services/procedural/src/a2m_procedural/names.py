"""Folder names of skills: nothing of an id or a key but lower-case letters, digits and single hyphens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from itertools import count

from a2m_retrieval.text import fold

SKILL = "SKILL.md"
MAX_FOLDER = 64

_DIGEST = 12
_ATTEMPTS = 10
_UNSAFE = re.compile(r"[^a-z0-9]+")


def slug(text: str) -> str:
    """What is left of `text` in a name: `a-z`, `0-9` and single hyphens between them; may be empty."""
    return _UNSAFE.sub("-", fold(text)).strip("-")


def folder_of(record_id: str, key: str | None, occupied: Container[str] = ()) -> str:
    """The folder of a record: a slug of its key, else of its id, and a digest of its id.

    The digest keeps names apart that a slug, or a file system without case, would make equal, and keeps
    reserved device names (`con`, `nul`) from standing alone. `occupied` holds names, in lower case, to avoid.
    """
    for attempt in count():
        digest = _digest(record_id, attempt)
        stem = slug(key or record_id)[: MAX_FOLDER - _DIGEST - 1].strip("-")
        name = f"{stem or 'skill'}-{digest}"
        if name not in occupied:
            return name
    raise AssertionError("count() never ends")


def is_made_for(name: str, record_id: str) -> bool:
    """Whether a folder's name is one that `folder_of` gives a record."""
    return name.rpartition("-")[2] in {_digest(record_id, attempt) for attempt in range(_ATTEMPTS)}


def folder_part(path: str) -> str:
    """The folder that a path to a `SKILL.md` is in; empty at the root."""
    return path[: -len(SKILL)].rstrip("/")


def _digest(record_id: str, attempt: int) -> str:
    given = record_id if attempt == 0 else f"{attempt} {record_id}"
    return hashlib.sha256(given.encode()).hexdigest()[:_DIGEST]
