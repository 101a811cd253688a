"""What a check can end with."""

from dataclasses import dataclass
from enum import StrEnum

from a2m_conformance.requirement import Requirement


class CheckFailure(AssertionError):  # noqa: N818 - the server's failure, not an error of ours
    """The server broke the requirement; the message says what was expected and what came."""


class NotApplicable(Exception):  # noqa: N818 - it is an outcome, not an error
    """The requirement cannot be tried on this server; the message says why."""


class Unreachable(Exception):  # noqa: N818 - reads as a state of the server
    """The server did not answer, or not in JSON-RPC."""


class Status(StrEnum):
    """How a requirement came out."""

    passed = "passed"
    failed = "failed"
    warned = "warned"
    skipped = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one requirement: its status, why (empty when passed) and how long it took in seconds."""

    requirement: Requirement
    status: Status
    detail: str = ""
    seconds: float = 0.0


def expect(condition: object, message: str) -> None:
    """Fail the running check with `message` unless `condition` holds."""
    if not condition:
        raise CheckFailure(message)
