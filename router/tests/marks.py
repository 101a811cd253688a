"""Owners with records in every tier, told apart by marks, and what each caller may see; nothing of ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ANN, BOB, EVE = "acme/ann", "acme/bob", "acme/ann/eve"
"""Two neighbours, and one whose name is beneath that of the first, which stands for nothing."""
OWNERS = (ANN, BOB, EVE, None)
MARKS: Mapping[str | None, str] = {ANN: "annfinch", BOB: "bobfinch", EVE: "evefinch", None: "poolfinch"}
TIERS = ("working", "episodic", "semantic", "procedural")
AT = "2026-01-01T00:00:00.000Z"
BEGAN = 1_767_225_600_000_000
COMMON = "lighthouse"
"""A word of every record."""

Fields = dict[str, Any]


def records(owner: str | None) -> list[Fields]:
    """Two records in each tier: in one all is the owner's own, the other has what other owners have too.

    Of the first, each is derived from the one in the tier before. What Eve has besides is derived from
    Ann's, who does not know.
    """
    mark, found = MARKS[owner], list[Fields]()
    said = {"principal": f"{mark}principal", "method": "remember", "client": f"{mark}client", "at": AT}
    for at, tier in enumerate(TIERS):
        own: Fields = {
            "id": f"{mark}-id-{tier}",
            "content": f"{COMMON} {mark}content {tier}",
            "session": f"{mark}session",
            "group": f"{mark}group/{tier}",
            "key": f"{mark}key/{tier}",
            "uri": f"https://{mark}.example/{tier}",
            "metadata": {"topic": f"{mark}topic"},
            "provenance": {**said, "source": f"{mark}source"},
        }
        if at:
            own["provenance"]["derived_from"] = [f"{mark}-id-{TIERS[at - 1]}"]
        shared: Fields = {
            "id": f"{mark}-too-{tier}",
            "content": f"{COMMON} {mark}words {tier}",
            "session": "talk",
            "group": f"pair/{tier}",
            "key": f"shared/{tier}",
            "metadata": {"topic": "shared"},
            "provenance": {**said, "source": "web"},
        }
        if owner == EVE:
            shared["provenance"]["derived_from"] = [f"{MARKS[ANN]}-id-{tier}"]
        for record in (own, shared):
            seq = BEGAN + len(found) * 1_000 + OWNERS.index(owner) * 100_000
            more: Fields = {"tier": tier, "role": "user", "seq": seq, "created_at": AT}
            if tier in ("episodic", "semantic"):
                more["embedding"] = [1.0, 0.0, 0.0]
            if owner is not None:
                more["owner"] = owner
            found.append(record | more)
    return found


def doubted(owner: str | None) -> list[Fields]:
    """What waits for evidence: it contradicts a fact of the owner's own, or one that others have too."""
    found: list[Fields] = []
    for at, key in enumerate((f"{MARKS[owner]}key/semantic", "shared/semantic")):
        said = {"source": f"{MARKS[owner]}rumour", "contests": key, "at": AT}
        record: Fields = {
            "id": f"{MARKS[owner]}-doubted-{at}",
            "content": f"{COMMON} {MARKS[owner]}doubted",
            "session": f"{MARKS[owner]}night{at}",
            "tier": "semantic",
            "seq": BEGAN + at,
            "created_at": AT,
            "status": "pending",
            "provenance": said,
        }
        found.append(record if owner is None else {**record, "owner": owner})
    return found


DOUBTED = [record for owner in OWNERS for record in doubted(owner)]
EVERYTHING = [record for owner in OWNERS for record in records(owner)]
GONE = {owner: f"{MARKS[owner]}-gone" for owner in OWNERS}
"""Ids of records that each owner forgot."""
IDS = [*(str(record["id"]) for record in EVERYTHING), *GONE.values()]


@dataclass(frozen=True)
class Who:
    """A caller as the operator meant it: an owner, and whose records it may see and change; None is all."""

    name: str
    role: str
    owner: str | None
    sees: frozenset[str | None] | None
    writes: frozenset[str | None] | None
    lists: tuple[str, ...] = ()
    pooled: bool = True

    def seen(self) -> list[Fields]:
        return [record for record in EVERYTHING if self.may_see(record.get("owner"))]

    def may_see(self, owner: str | None) -> bool:
        return self.sees is None or owner in self.sees

    def may_write(self, owner: str | None) -> bool:
        return self.writes is None or owner in self.writes

    def strangers(self) -> list[str | None]:
        return [owner for owner in OWNERS if not self.may_see(owner)]


def _sees(*owners: str | None) -> frozenset[str | None]:
    return frozenset(owners)


AGENT = Who("agent-a", "agent", ANN, _sees(ANN, None), _sees(ANN))
OTHER = Who("agent-b", "agent", BOB, _sees(BOB, None), _sees(BOB))
READER = Who("desk", "reader", "desk", _sees("desk", ANN), _sees(), lists=(ANN,), pooled=False)
CURATOR = Who("editor", "curator", "editor", _sees("editor", ANN, None), _sees("editor", ANN, None), (ANN,))
OPERATOR = Who("root", "operator", "root", None, None)
NOBODY = Who("loopback", "nobody", None, _sees(None), _sees(None))
"""Whoever calls a server that does not authenticate: it may use our extensions, on pooled records."""
KNOWN = (AGENT, OTHER, READER, CURATOR, OPERATOR)

READS = frozenset(
    [
        "describe",
        "recall",
        "timeline",
        "fetch",
        "session/list",
        "events",
        "events/subscribe",
        "events/unsubscribe",
        "context",
        "trace",
        "pending",
        "held",
    ]
)
WRITES = frozenset(
    ["remember", "forget", "promote", "consolidate", "reinforce", "session/close", "summarize"]
)
CURATES = frozenset({"purge", "approve", "reject"})
REVIEWS = frozenset({"pending", "approve", "reject"})
OPERATES = frozenset(
    [
        "forget_if",
        "tombstones",
        "list",
        "read",
        "touch",
        "embed",
        "reembed",
        "relocate",
        "settle",
        "judge",
        "remnants",
        "erase",
    ]
)
ALL = READS | WRITES | CURATES | OPERATES


def may_call(who: Who, method: str) -> bool:
    allowed = {
        "agent": READS | WRITES,
        "reader": READS,
        "curator": READS | WRITES | CURATES,
        "operator": ALL,
        "nobody": ALL,
    }
    return method in allowed[who.role]


def _strings(owner: str | None) -> set[str]:
    found = {MARKS[owner]} | ({owner} if owner is not None else set())
    todo: list[Any] = [*records(owner), *doubted(owner)]
    while todo:
        match todo.pop():
            case str() as text if MARKS[owner] in text:
                found.add(text)
            case dict() as fields:
                todo += fields.values()
            case list() as items:
                todo += items
            case _:
                pass
    return found


SECRETS = {owner: _strings(owner) | {GONE[owner]} for owner in OWNERS}


def leaks(strangers: Iterable[str | None], answer: str, asked: object = None) -> list[str]:
    """What an answer says of the records of `strangers` that was not said in asking."""
    said = json.dumps(asked, ensure_ascii=False)
    found: list[str] = []
    for owner in strangers:
        if MARKS[owner] not in answer and (owner is None or owner not in answer):
            continue
        # Ann's name is in that of Eve.
        found += [secret for secret in sorted(SECRETS[owner]) if secret in answer and secret not in said]
    return found
