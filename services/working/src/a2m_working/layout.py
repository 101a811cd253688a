"""How owners, sessions and tombstones are written in keys and scripts."""

from __future__ import annotations

import hashlib
import json

from a2m_server.values import Scope, Tombstone

DAY_MS = 86_400_000


def encode(name: str | None) -> str:
    """A name that may be null as a string that tells null from every name."""
    return "-" if name is None else "=" + name


def decode(text: bytes) -> str | None:
    return None if text == b"-" else text[1:].decode()


def bucket_tag(owner: str | None, session: str | None) -> str:
    """The hash tag of an (owner, session) bucket: a digest, so that no name reaches the syntax of keys."""
    return hashlib.blake2b(json.dumps([owner, session]).encode(), digest_size=16).hexdigest()


def visibility(scope: Scope) -> str:
    """Whose records a script may touch: `*`, or a JSON list of encoded owners."""
    if scope.readable is None:
        return "*"
    return json.dumps([encode(owner) for owner in scope.readable], ensure_ascii=False)


def tombstone_text(stone: Tombstone) -> str:
    """A tombstone as scripts keep it: reason, seq, moves, owner, session, target, key."""
    return json.dumps(
        [
            stone.reason,
            str(stone.seq),
            str(stone.moves),
            encode(stone.owner),
            encode(stone.session),
            encode(stone.target),
            encode(stone.key),
        ],
        ensure_ascii=False,
    )


def tombstone_of(record_id: str, text: bytes) -> Tombstone:
    reason, seq, moves, owner, session, target, key = (part for part in json.loads(text))
    return Tombstone(
        id=record_id,
        reason=reason,
        seq=int(seq),
        owner=decode(owner.encode()),
        key=decode(key.encode()),
        session=decode(session.encode()),
        target=decode(target.encode()),
        moves=int(moves),
    )
