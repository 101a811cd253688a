"""Waiting for what another process does, and a step at which a router stops (`pausable_router`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import httpx

T = TypeVar("T")

_POLL_SECONDS = 0.02
_STEP_SECONDS = 20.0


class FaultError(AssertionError):
    """Something did not happen in time; the message says what."""


def poll(what: str, condition: Callable[[], T], seconds: float = 30.0) -> T:
    """Ask until the answer is true, and return it; raises `FaultError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise FaultError(f"{what}: not within {seconds:g} s")
        time.sleep(_POLL_SECONDS)
    return answer


class Pause:
    """A step at which a router stops once; leaving the `with` block lets it go on."""

    def __init__(self, step: str, http: httpx.Client, url: str, number: int) -> None:
        self._step = step
        self._http = http
        self._url = f"{url}/pauses/{number}"

    def reached(self, seconds: float = _STEP_SECONDS) -> None:
        """Wait until the router has stopped there; raises `FaultError` when it does not."""
        poll(f"the step {self._step}", lambda: self._http.get(self._url).json()["reached"], seconds)

    def go(self) -> None:
        """Let the router go on; nothing to do where it was killed meanwhile."""
        try:
            self._http.delete(self._url)
        except httpx.TransportError:
            return
