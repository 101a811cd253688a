"""git's objects as bytes: their names, the entries of a tree, and many of them as one pack."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["commit", "tree", "blob", "tag"]

_FOLDER = 0o40000
_TYPES: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}


@dataclass(frozen=True, slots=True)
class Object:
    kind: Kind
    data: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a tree: mode, name and the name of the object."""

    mode: bytes
    name: bytes
    sha: str

    @property
    def is_folder(self) -> bool:
        return int(self.mode, 8) == _FOLDER

    def raw(self) -> bytes:
        return b"%s %s\0%s" % (self.mode, self.name, bytes.fromhex(self.sha))


def name_of(made: Object, algorithm: str) -> str:
    """An object's name; `algorithm` is `sha1` or `sha256`, as the repository has it."""
    digest = hashlib.new(algorithm, b"%s %d\0" % (made.kind.encode(), len(made.data)))
    digest.update(made.data)
    return digest.hexdigest()


def entries(tree: bytes, algorithm: str) -> Iterator[Entry]:
    """The lines of a tree in their order."""
    width = hashlib.new(algorithm).digest_size
    at = 0
    while at < len(tree):
        space = tree.index(b" ", at)
        nul = tree.index(b"\0", space)
        end = nul + 1 + width
        yield Entry(tree[at:space], tree[space + 1 : nul], tree[nul + 1 : end].hex())
        at = end


def pack(objects: Sequence[Object], algorithm: str) -> bytes:
    """A pack of version 2, each object whole."""
    body = b"".join((b"PACK", (2).to_bytes(4), len(objects).to_bytes(4), *_packed(objects)))
    return body + hashlib.new(algorithm, body).digest()


def _packed(objects: Iterable[Object]) -> Iterator[bytes]:
    for one in objects:
        size = len(one.data)
        byte, size = (_TYPES[one.kind] << 4) | (size & 15), size >> 4
        head = bytearray()
        while size:
            head.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        head.append(byte)
        yield bytes(head)
        yield zlib.compress(one.data)
