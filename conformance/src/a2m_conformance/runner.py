"""Running checks against one server."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import httpx

from a2m_conformance.check import Check, collect
from a2m_conformance.outcome import CheckFailure, NotApplicable, Outcome, Status, Unreachable
from a2m_conformance.probe import Probe
from a2m_conformance.requirement import Requirement, load
from a2m_conformance.shapes import Json, is_list, is_object, part
from a2m_conformance.wire import Wire

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: id prefixes (all when empty), local and slow rules or not, seconds a check may take,
    whether the server takes writes (None: find out), whether it believes our `owner` also over HTTP, and the
    width of the first vector (None: write none to a store that has no width yet)."""

    only: tuple[str, ...] = ()
    local: bool = True
    slow: bool = True
    timeout: float = 20.0
    read_only: bool | None = None
    trusted: bool = False
    dimensions: int | None = 8


@dataclass(slots=True)
class Run:
    """A finished run: what the server said of itself, and an outcome a requirement."""

    about: Json
    read_only: bool
    transport: str
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    @property
    def passed(self) -> bool:
        """Whether no applicable check failed."""
        return all(outcome.status != Status.failed for outcome in self.outcomes)

    def count(self, status: Status) -> int:
        """How many requirements came out as `status`."""
        return sum(outcome.status == status for outcome in self.outcomes)


async def run(
    wire: Wire,
    options: Options = Options(),
    progress: Callable[[Outcome], None] | None = None,
) -> Run:
    """Run every applicable check over `wire`; Unreachable if the server does not even describe itself."""
    started = time.monotonic()
    about = await _describe(wire, options.timeout)
    read_only = options.read_only
    if read_only is None:
        read_only = await _refuses_writes(wire, options.timeout)
    finished = Run(about, read_only, wire.transport)
    checks, requirements = collect(), load()
    chosen: list[tuple[Requirement, Check]] = []
    for requirement in requirements.values():
        if options.only and not requirement.id.startswith(options.only):
            continue
        reason = _why_not(requirement, checks[requirement.id], wire, finished, options)
        if reason:
            finished.outcomes.append(Outcome(requirement, Status.skipped, reason))
        else:
            chosen.append((requirement, checks[requirement.id]))

    def probe() -> Probe:
        return Probe(wire, about, read_only=finished.read_only, dimensions=options.dimensions)

    async def attempt(requirement: Requirement, check: Check) -> None:
        outcome = await _attempt(requirement, check, probe(), options.timeout)
        finished.outcomes.append(outcome)
        if progress:
            progress(outcome)

    gate = asyncio.Semaphore(_AT_ONCE)

    async def gated(requirement: Requirement, check: Check) -> None:
        async with gate:
            await attempt(requirement, check)

    await asyncio.gather(*(gated(*pair) for pair in chosen if pair[1].phase == "together"))
    for phase in ("alone", "last"):
        for pair in chosen:
            if pair[1].phase == phase:
                await attempt(*pair)
    order = {name: number for number, name in enumerate(requirements)}
    finished.outcomes.sort(key=lambda outcome: order[outcome.requirement.id])
    finished.seconds = time.monotonic() - started
    return finished


async def _attempt(requirement: Requirement, check: Check, probe: Probe, patience: float) -> Outcome:
    started = time.monotonic()
    status, detail = Status.passed, ""
    try:
        async with asyncio.timeout(patience):
            await check.run(probe)
    except NotApplicable as reason:
        status, detail = Status.skipped, str(reason)
    except (CheckFailure, Unreachable) as failure:
        status, detail = Status.failed, str(failure)
    except TimeoutError:
        status, detail = Status.failed, f"no end after {patience:g} s"
    except (OSError, httpx.TransportError) as failure:
        status, detail = Status.failed, f"the connection failed: {type(failure).__name__} {failure}"
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        # The outermost loop of a check: a response of another shape than the protocol's trips ordinary code.
        status, detail = Status.failed, f"unexpected shape of a response: {type(error).__name__} {error}"
    if status == Status.failed and requirement.should:
        status = Status.warned
    seconds = time.monotonic() - started
    try:
        async with asyncio.timeout(patience):
            await probe.clean()
    except (TimeoutError, CheckFailure, Unreachable) as error:
        if status == Status.passed:
            status, detail = Status.failed, f"passed, but forgetting what it wrote failed: {error!r}"
    return Outcome(requirement, status, detail, seconds)


def _why_not(requirement: Requirement, check: Check, wire: Wire, about: Run, options: Options) -> str | None:
    believed = options.trusted or wire.transport == "stdio"
    missing = requirement.needs - frozenset(about.about["capabilities"])
    reasons: Iterable[tuple[object, str]] = (
        (missing, f"not declared: {', '.join(sorted(missing))}"),
        (requirement.transport not in (None, wire.transport), f"for {requirement.transport} alone"),
        (requirement.trust is True and not believed, "the server believes no owner that a client names"),
        (requirement.trust is False and options.trusted, "the server believes the owner that we name"),
        (requirement.profile == "writable" and about.read_only, "the server is read-only"),
        (requirement.profile == "read-only" and not about.read_only, "the server takes writes"),
        (requirement.local and not options.local, "a local rule, left out on request"),
        (check.slow and not options.slow, "slow, left out on request"),
    )
    return next((reason for applies, reason in reasons if applies), None)


async def _describe(wire: Wire, patience: float) -> Json:
    about = (await _first(wire, "memory/describe", {}, patience)).get("result")
    if not is_object(about) or not is_list(about.get("capabilities")):
        raise Unreachable("memory/describe did not answer with an object that has capabilities")
    return about


async def _refuses_writes(wire: Wire, patience: float) -> bool:
    # An empty remember writes nothing anywhere: read-only servers refuse it for that, all others as invalid.
    envelope = await _first(wire, "memory/remember", {"records": []}, patience)
    return part(envelope.get("error"), "code") == -32004


async def _first(wire: Wire, method: str, params: Json, patience: float) -> dict[str, Json]:
    """A call without which nothing can be tried at all."""
    try:
        async with asyncio.timeout(patience):
            return await wire.request(method, params)
    except TimeoutError as error:
        raise Unreachable(f"{method} had no answer in {patience:g} s") from error
    except CheckFailure as error:
        raise Unreachable(str(error)) from error
