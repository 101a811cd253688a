"""The network between the router and a tier is cut: no call hangs, none lies, and all is well soon after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import httpx
import pytest
from account import Account
from cutter import Mode
from harness import TIERS, Federation
from nursery import Nursery
from pausing import poll
from scenarios import CALLS, Scenario

from a2m_protocol.errors import A2MError

TIMEOUT = 1.5
PROBE = 0.5
SLACK = 1.0
LONGEST_WRITE = 3 * TIMEOUT
"""A write asks tiers one after another; when three calls have failed the router asks the tier no more."""
MODES = tuple(mode for mode in get_args(Mode) if mode != "pass")
DELAYS = {"delay": 5.0, "late": 2.5}
SAMPLED = ("recall", "timeline of a session", "fetch from episodic", "remember in tiers", "close")
SAMPLE = [("episodic", "refuse"), ("episodic", "black hole")]

ALONE = [
    *((tier, call) for tier in ("working", "episodic") for call in CALLS),
    *(("semantic", call) for call in CALLS if call.name in ("promote", "rewrite-move")),
]
"""Where a black hole is met by the source or the target of a move, and by what changes nothing else."""

Thing = tuple[str, object]
"""What a read shows: the tier that it is of, and what it is."""
Read = Callable[[Account], tuple[set[Thing], list[str]]]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cuttable(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("cuttable")
    with Federation(
        folder,
        nursery,
        proxied=TIERS,
        tier_timeout=TIMEOUT,
        sweep=3_600.0,
        settings={"PROBE_INTERVAL": str(PROBE)},
    ) as federation:
        yield federation


@pytest.fixture(autouse=True)
def _healed(cuttable: Federation) -> Iterator[None]:
    yield
    for tier in cuttable.cutters:
        _recovery(cuttable, tier)


@pytest.mark.parametrize(("tier", "mode"), SAMPLE)
def test_no_call_hangs_or_lies_while_a_tier_is_cut_off(cuttable: Federation, tier: str, mode: Mode) -> None:
    reads = [name for name in READS if name in SAMPLED]
    calls = [call for call in CALLS if call.name in SAMPLED]
    assert _reading(cuttable, tier, mode, reads) + _writing(cuttable, tier, mode, calls) == []


@pytest.mark.faults
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tier", TIERS)
def test_no_read_hangs_or_lies_whichever_tier_is_cut_off(cuttable: Federation, tier: str, mode: Mode) -> None:
    assert _reading(cuttable, tier, mode, [*READS]) == []


@pytest.mark.faults
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tier", TIERS)
def test_no_write_hangs_or_lies_whichever_tier_is_cut_off(
    cuttable: Federation, tier: str, mode: Mode
) -> None:
    assert _writing(cuttable, tier, mode, CALLS) == []


@pytest.mark.faults
@pytest.mark.parametrize(("tier", "call"), ALONE, ids=lambda given: getattr(given, "name", given))
def test_no_write_waits_long_for_a_black_hole_that_it_is_the_first_to_meet(
    cuttable: Federation, tier: str, call: Scenario
) -> None:
    assert _writing(cuttable, tier, "black hole", [call]) == []


@pytest.mark.faults
@pytest.mark.parametrize("tier", TIERS)
def test_no_write_waits_for_a_tier_that_is_known_not_to_answer(cuttable: Federation, tier: str) -> None:
    made = [(call, _prepared(cuttable, call)) for call in CALLS]
    cuttable.cutters[tier].cut("black hole")
    _give_up(cuttable, tier)
    problems = [problem for call, account in made for problem in _act(account, call, tier, SLACK)]
    problems += _recovery(cuttable, tier)
    cuttable.settle()
    problems += _problems(made)
    for call, account in made:
        _act_again(account, call)
    cuttable.settle()
    assert problems + _problems(made) == []


@pytest.mark.faults
@pytest.mark.parametrize("tier", TIERS)
def test_a_reinforcement_counts_once_or_not_at_all_whichever_tier_is_cut_off(
    cuttable: Federation, tier: str
) -> None:
    """It is no call to repeat: what failed may have counted, and what returned counts for all of its ids."""
    problems: list[str] = []
    for mode in MODES:
        account = _everywhere(cuttable)
        before = _salience(account)
        cuttable.cutters[tier].cut(mode, DELAYS.get(mode, 0.0))
        begun = time.monotonic()
        returned = _succeeds(account, _reinforce)
        if (took := time.monotonic() - begun) > LONGEST_WRITE + SLACK:
            problems.append(f"{mode}: took {took:.2f} s")
        problems += _recovery(cuttable, tier)
        poll("what was late has passed", lambda: cuttable.cutters[tier].idle)
        counted = {i: salience - before[i] for i, salience in _salience(account).items()}
        possible = {1.0} if returned else {0.0, 1.0}
        if counted.keys() != before.keys() or not set(counted.values()) <= possible:
            problems.append(f"{mode}: returned is {returned}, and counted was {counted}")
    assert problems == []


def _salience(account: Account) -> dict[str, float]:
    return {r["id"]: r["salience"] for r in account.call("timeline")["records"]}


def _reinforce(account: Account) -> None:
    account.call("reinforce", ids=[*account.told])


def _reading(federation: Federation, tier: str, mode: Mode, names: Sequence[str]) -> list[str]:
    """Reads, all at once when the network is cut, then each when the tier is known to be away."""
    account = _everywhere(federation)
    whole = {name: READS[name](account) for name in names}
    problems = [f"{name}: degraded before the cut" for name, (_, silent) in whole.items() if silent]
    federation.cutters[tier].cut(mode, DELAYS.get(mode, 0.0))
    reads = [federation.later(_read, account, tier, name, whole[name][0], TIMEOUT + SLACK) for name in names]
    problems += [problem for read in reads for problem in read.result()]
    _give_up(federation, tier)
    for name in names:
        problems += _read(account, tier, name, whole[name][0], SLACK)
    problems += _recovery(federation, tier)
    return problems + [f"{n}: not as before" for n in names if READS[n](account) != whole[n]]


def _read(account: Account, tier: str, name: str, whole: set[Thing], limit: float) -> list[str]:
    """What is wrong with a read while `tier` is cut off, which shows the `whole` when it is not."""
    begun = time.monotonic()
    try:
        shown, silent = READS[name](account)
    except A2MError as error:
        return [f"{name}: failed: {error.message}"]
    took = time.monotonic() - begun
    expected = {thing for thing in whole if not silent or thing[0] != tier}
    problems: list[str] = []
    if took > limit:
        problems.append(f"{name}: took {took:.2f} s")
    if silent not in ([], [tier]):
        problems.append(f"{name}: says that {silent} is missing")
    if shown != expected:
        problems.append(f"{name}: shows {shown}, and should {expected}, degraded: {silent}")
    return problems


def _writing(federation: Federation, tier: str, mode: Mode, calls: Iterable[Scenario]) -> list[str]:
    """Writes, all at once when the network is cut, and again when it is healed; what was wrong."""
    made = [(call, _prepared(federation, call)) for call in calls]
    cutter = federation.cutters[tier]
    cutter.cut(mode, DELAYS.get(mode, 0.0))
    limit = LONGEST_WRITE + SLACK
    acting = [federation.later(_act, account, call, tier, limit) for call, account in made]
    problems = [problem for act in acting for problem in act.result()]
    problems += _recovery(federation, tier)
    if mode != "late":
        # What is late may come when the client has tried again.
        federation.settle()
        problems += _problems(made)
    for again in [federation.later(_act_again, account, call) for call, account in made]:
        again.result()
    poll("what was late has passed", lambda: cutter.idle)
    federation.settle()
    return problems + _problems(made)


def _problems(made: Iterable[tuple[Scenario, Account]]) -> list[str]:
    return [f"{call.name}: {problem}" for call, account in made for problem in account.problems()]


def _prepared(federation: Federation, call: Scenario) -> Account:
    account = Account(federation)
    call.prepare(account)
    account.look()
    return account


def _act(account: Account, call: Scenario, tier: str, limit: float) -> list[str]:
    """Make a call while `tier` is cut off, and note what became of it; what was wrong with its answer."""
    failure: A2MError | None = None
    begun = time.monotonic()
    try:
        call.act(account)
    except A2MError as error:
        failure = error
    took = time.monotonic() - begun
    call.settle(account, failure is None)
    problems: list[str] = []
    if took > limit:
        problems.append(f"{call.name}: took {took:.2f} s")
    if failure is not None:
        account.failed(failure)
        if not failure.retryable:
            problems.append(f"{call.name}: failed for good: {failure.message}")
        if call.name == "remember a turn" and tier != "working":
            problems.append(f"{call.name}: failed for a tier that it does not need: {failure.message}")
    return problems


def _act_again(account: Account, call: Scenario) -> None:
    """Make a call until it returns, which it must soon."""
    poll(f"{call.name} succeeds", partial(_succeeds, account, call), TIMEOUT + PROBE + SLACK)
    call.settle(account, True)


def _succeeds(account: Account, call: Scenario | Callable[[Account], None]) -> bool:
    try:
        (call.act if isinstance(call, Scenario) else call)(account)
    except A2MError as error:
        if not error.retryable:
            raise
        return False
    return True


def _give_up(federation: Federation, tier: str) -> None:
    """Read until the router asks a tier no more."""
    poll(f"{tier} is given up", lambda: _is_given_up(federation, tier))


def _is_given_up(federation: Federation, tier: str) -> bool:
    federation.router.call("timeline", limit=1)
    figures = httpx.get(f"{federation.router.url}/metrics").text
    return f'a2m_circuit_open{{tier="{tier}"}} 1.0' in figures.splitlines()


def _recovery(federation: Federation, tier: str) -> list[str]:
    """Heal the network; whether the tier is asked again within one interval of probes."""
    cutter = federation.cutters[tier]
    cutter.heal()
    begun = time.monotonic()
    poll(f"{tier} is asked again", lambda: "degraded" not in federation.router.call("timeline", limit=1))
    took = time.monotonic() - begun
    return [] if took <= PROBE + 1.5 * SLACK else [f"{tier} was asked again after {took:.2f} s"]


def _everywhere(federation: Federation) -> Account:
    """A client with a turn and a fact in each tier."""
    account = Account(federation)
    account.cursor = account.call("events")["cursor"]
    for tier in TIERS:
        account.remember(
            account.draft(f"in {tier}", tier=tier),
            account.draft(f"fact in {tier}", tier=tier, key=f"{account.mark}/{tier}"),
        )
    return account


def _silent(answer: dict[str, Any]) -> list[str]:
    return [missing["tier"] for missing in answer.get("degraded", [])]


def _records(method: str, params: Callable[[Account], dict[str, Any]]) -> Read:
    def read(account: Account) -> tuple[set[Thing], list[str]]:
        answer = account.call(method, **params(account))
        return {(r["tier"], (r["id"], r["content"])) for r in answer["records"]}, _silent(answer)

    return read


def _fetched(tier: str) -> Read:
    def read(account: Account) -> tuple[set[Thing], list[str]]:
        answer = account.call("fetch", key=f"{account.mark}/{tier}")
        record = answer["record"]
        return set() if record is None else {(record["tier"], record["id"])}, _silent(answer)

    return read


def _sessions(account: Account) -> tuple[set[Thing], list[str]]:
    answer = account.call("session/list")
    mine = [s for s in answer["sessions"] if s["session"] == account.session]
    return {(tier, count) for s in mine for tier, count in s["tiers"].items()}, _silent(answer)


def _described(account: Account) -> tuple[set[Thing], list[str]]:
    answer = account.call("describe")
    return {(t["name"], t["count"]) for t in answer["tiers"] if t["count"]}, _silent(answer)


def _events(account: Account) -> tuple[set[Thing], list[str]]:
    answer = account.call("events", cursor=account.cursor)
    return {("", str(event)) for event in answer["events"]}, _silent(answer)


READS: dict[str, Read] = {
    "recall": _records("recall", lambda account: {"query": account.mark, "limit": 100, "touch": False}),
    "recall by recency": _records("recall", lambda _: {"limit": 100, "touch": False}),
    "timeline": _records("timeline", lambda _: {}),
    "timeline of a session": _records("timeline", lambda account: {"where": {"session": account.session}}),
    **{f"fetch from {tier}": _fetched(tier) for tier in TIERS},
    "session/list": _sessions,
    "describe": _described,
    "events": _events,
}
