"""A bearer token that lives in a file."""

from __future__ import annotations

import re
from pathlib import Path

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*", re.ASCII)


class TokenFile:
    """The token in a file (surrounding white space ignored), read again whenever the file changes.

    A file that vanishes or becomes unreadable later leaves the last token in force, so that replacing it
    never locks anybody out. Raises `ValueError` when there is no usable token at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = (0, 0, 0)
        self._token = b""
        try:
            self._refresh()
        except OSError as error:
            raise ValueError(f"cannot read the token file {path}: {error.strerror}") from error
        if not self._token:
            raise ValueError(f"the token file {path} holds no bearer token (letters, digits and -._~+/)")

    @property
    def token(self) -> bytes:
        """The token in force now."""
        try:
            self._refresh()
        except OSError:
            return self._token
        return self._token

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    def _refresh(self) -> None:
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            text = self._path.read_text(encoding="utf-8", errors="replace").strip()
            if _TOKEN.fullmatch(text):
                self._token = text.encode()
            self._stamp = stamp
