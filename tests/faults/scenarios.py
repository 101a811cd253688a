"""What a fault falls into: a client's call that crosses tiers, its preparation, and what it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

from account import Account, Fate, Fields

from a2m_router.steps import Step

Act = Callable[[Account], object]

MOVE: tuple[Step, ...] = tuple(step for step in get_args(Step) if step.startswith("move: "))
FORGET: tuple[Step, ...] = tuple(step for step in get_args(Step) if step.startswith("forget: "))
WRITE: tuple[Step, ...] = tuple(step for step in get_args(Step) if step.startswith("write: "))


@dataclass(frozen=True)
class Scenario:
    """One call, idempotent, so that its client may repeat it after a failure.

    `prepare` writes what it works on. `act` makes the call. `settle` notes what it promises: surely when it
    returned, perhaps when it failed. `steps` are those that it passes; in the `background` ones it returns
    before they are reached.
    """

    name: str
    steps: tuple[Step, ...]
    prepare: Callable[[Account], None]
    act: Act
    settle: Callable[[Account, bool], None]
    background: bool = False


def _spill_prepared(account: Account) -> None:
    account.remember(
        account.draft("asked", role="user"),
        account.draft("tool", role="assistant", group=f"{account.mark}/call"),
    )
    account.remember(
        account.draft("result", role="tool", group=f"{account.mark}/call", embedding=[0.25, -0.0, 1e-7]),
        account.draft("odd", metadata={"n": 2**53 + 1, "x": [1, 1.0, None, {"é": ""}], "-0": -0.0}),
    )
    account.remember(account.draft("fact", key=f"{account.mark}/fact"), account.draft("answered"))


def _more(account: Account) -> list[Fields]:
    return [account.draft(f"more {number}") for number in range(3)]


def _spilled(account: Account, surely: bool) -> None:
    _written(account, _more(account), surely)
    if surely:
        for name in ("asked", "tool", "result"):
            account.told[f"{account.mark}/{name}"].home = "episodic"
        for draft in _more(account):
            account.told[draft["id"]].home = "working"


def _written(account: Account, drafts: Iterable[Fields], surely: bool) -> None:
    fate: Fate = "kept" if surely else "either"
    account.batches.clear()
    account.note(drafts, fate)


def _promotion_prepared(account: Account) -> None:
    group = f"{account.mark}/call"
    account.remember(
        account.draft("tool", "plum", tier="episodic", group=group, metadata={"n": [1, 2.5, None]}),
        account.draft("result", tier="episodic", group=group, embedding=[0.25, 0.5, 1e-7]),
        account.draft("fact", "plum", tier="episodic", key=f"{account.mark}/fact"),
        account.draft("plain", tier="episodic"),
    )
    for told in account.told.values():
        told.home = None
    plums = [f"{account.mark}/tool", f"{account.mark}/fact"]
    account.federation.router.call("touch", ids=plums * account.federation.promote_after, at=_LONG_AGO)


def _promoted(account: Account, surely: bool) -> None:
    for name, told in account.told.items():
        if surely:
            told.home = "episodic" if name.endswith("/plain") else "semantic"


def _closed(account: Account, surely: bool) -> None:
    for told in account.told.values():
        told.home = "episodic" if surely else None


def _forget_prepared(account: Account) -> None:
    _spill_prepared(account)
    account.remember(*_more(account))
    account.remember(
        account.draft("truth", "plum", tier="semantic"),
        account.draft("skill", "plum", tier="procedural"),
        account.draft("late", "plum"),
        account.draft("kept", "pear", tier="semantic"),
    )
    account.federation.settle()


def _forgotten(*names: str) -> Callable[[Account, bool], None]:
    def settle(account: Account, surely: bool) -> None:
        for name in names:
            account.told[f"{account.mark}/{name}"].fate = "gone" if surely else "either"

    return settle


def _forget_ids(account: Account) -> object:
    return account.call("forget", ids=[f"{account.mark}/{name}" for name in _DOOMED])


def _forget_query(account: Account) -> object:
    return account.call("forget", query="plum", where={"session": account.session})


_KEYED = ("working", "episodic", "semantic")


def _rewrite_prepared(account: Account) -> None:
    account.remember(account.draft("asked"))
    for tier in _KEYED:
        account.remember(account.draft(f"fact of {tier}", key=f"{account.mark}/{tier}", tier=tier))


def _rewrites(account: Account) -> list[Fields]:
    return [account.draft(f"new value of {t}", key=f"{account.mark}/{t}") for t in _KEYED]


def _rewrite(account: Account) -> object:
    return account.send(account.draft("news", tier="episodic"), *_rewrites(account), account.draft("said"))


def _rewritten(account: Account, surely: bool) -> None:
    _written(account, [account.draft("news", tier="episodic"), account.draft("said")], surely)
    for tier, draft in zip(_KEYED, _rewrites(account), strict=True):
        account.told[f"{account.mark}/fact of {tier}"].rewritten(draft["content"], surely=surely)
        # The id of a rewrite is an alias: the record keeps its own.
        account.note([draft], "gone")


def _removal_prepared(account: Account) -> None:
    account.remember(account.draft("asked"), account.draft("fact", key=f"{account.mark}/fact", salience=2.5))


def _remove(account: Account) -> object:
    return account.send(account.draft("moved fact", key=f"{account.mark}/fact", tier="semantic"))


def _removed(account: Account, surely: bool) -> None:
    draft = account.draft("moved fact", key=f"{account.mark}/fact")
    account.told[f"{account.mark}/fact"].rewritten(draft["content"], surely=surely)
    account.note([draft], "gone")


_LONG_AGO = "2020-01-02T03:04:05.678Z"
_DOOMED = ("tool", "odd", "truth", "skill", "late")


def _sender(drafts: Callable[[Account], list[Fields]]) -> Act:
    return lambda account: account.send(*drafts(account))


def _caller(method: str, **params: Any) -> Act:
    return lambda account: account.call(method, **params)


def _turn(account: Account) -> list[Fields]:
    return [account.draft("said", role="user"), account.draft("answered", role="assistant")]


def _placed(account: Account) -> list[Fields]:
    return [account.draft(f"for {tier}", tier=tier) for tier in ("episodic", "semantic", "procedural")]


def _promote(account: Account) -> object:
    named = [f"{account.mark}/{name}" for name in ("tool", "fact")]
    return account.call("promote", ids=named, tier="semantic")


SCENARIOS = (
    Scenario("spill", MOVE, _spill_prepared, _sender(_more), _spilled, background=True),
    Scenario("promotion", MOVE, _promotion_prepared, _caller("consolidate"), _promoted),
    Scenario(
        "close",
        MOVE,
        _spill_prepared,
        lambda account: account.call("session/close", session=account.session),
        _closed,
    ),
    Scenario("forget-ids", FORGET, _forget_prepared, _forget_ids, _forgotten(*_DOOMED)),
    Scenario("forget-query", FORGET, _forget_prepared, _forget_query, _forgotten("truth", "skill", "late")),
    Scenario("rewrite", WRITE, _rewrite_prepared, _rewrite, _rewritten),
    Scenario("rewrite-move", (*WRITE, *MOVE), _removal_prepared, _remove, _removed),
)

CALLS = (
    Scenario(
        "remember a turn", (), lambda a: None, _sender(_turn), lambda a, surely: _written(a, _turn(a), surely)
    ),
    Scenario(
        "remember in tiers",
        (),
        lambda a: None,
        _sender(_placed),
        lambda a, surely: _written(a, _placed(a), surely),
    ),
    Scenario("promote", MOVE, _promotion_prepared, _promote, _promoted),
    *(scenario for scenario in SCENARIOS if not scenario.background),
)
"""All that changes something and may be repeated; the promotion of `SCENARIOS` is a `consolidate`."""
