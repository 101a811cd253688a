"""What a check is, and how all of them are found."""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from a2m_conformance import checks
from a2m_conformance.probe import Probe

Phase = Literal["together", "alone", "last"]


@dataclass(frozen=True, slots=True)
class Check:
    """A coroutine function that tries one requirement and raises CheckFailure or NotApplicable.

    `together` checks run concurrently; those that look at what others disturb (events, counts) run `alone`;
    `last` ones look at the whole run or end the connection.
    """

    requirement: str
    run: Callable[[Probe], Awaitable[None]]
    phase: Phase
    slow: bool


def check(
    requirement: str, *, phase: Phase = "together", slow: bool = False
) -> Callable[[Callable[[Probe], Awaitable[None]]], Check]:
    """Make a coroutine function the check of `requirement`."""

    def wrap(run: Callable[[Probe], Awaitable[None]]) -> Check:
        return Check(requirement, run, phase, slow)

    return wrap


def collect() -> dict[str, Check]:
    """Every check of every module in `a2m_conformance.checks`, by the id of its requirement."""
    found: dict[str, Check] = {}
    for module in pkgutil.iter_modules(checks.__path__, checks.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Check):
                if value.requirement in found:
                    raise ValueError(f"two checks for {value.requirement}")
                found[value.requirement] = value
    return found
