"""A bearer token that lives in a file."""

from __future__ import annotations

import re
from pathlib import Path

from a2m_protocol.files import Watched

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*", re.ASCII)


class TokenFile:
    """The token in a file (surrounding white space ignored), read again whenever the file changes.

    A file that vanishes or becomes unreadable later leaves the last token in force, so that replacing it
    never locks anybody out. Raises `ValueError` when there is no usable token at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._watched = Watched(path, _parse)
        except OSError as error:
            raise ValueError(f"cannot read the token file {path}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"the token file {path} {error}") from error

    @property
    def token(self) -> bytes:
        """The token in force now."""
        return self._watched.value

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"


def _parse(held: bytes) -> bytes:
    token = held.decode(errors="replace").strip()
    if not _TOKEN.fullmatch(token):
        raise ValueError("holds no bearer token (letters, digits and -._~+/)")
    return token.encode()
