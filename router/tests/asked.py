"""What can be asked of every method: all that it takes, in the tiers and with the names of every owner.

`TABLE` has an entry a method. Each `Ask` knows which records it selects, by its own reading of a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marks import ANN, AT, BOB, COMMON, DOUBTED, EVE, EVERYTHING, GONE, IDS, MARKS, OWNERS, TIERS, Fields

Keep = Callable[[Fields], bool]


@dataclass(frozen=True)
class Ask:
    """Parameters, and which records they select (None where no set of records is selected)."""

    params: Fields
    keep: Keep | None = None


def everything(_: Fields) -> bool:
    return True


ODD_OWNERS: Sequence[Any] = ("", "acme", "acme/", "acme/*", "*", "\x00", 5, True, [EVE], {"in": [EVE]}, {})
OWNER_FORMS: Sequence[Fields] = (
    *({"owner": owner} for owner in (*OWNERS, *ODD_OWNERS)),
    {"owners": [EVE, BOB, ANN, None]},
    {"owner": ANN, "owners": [EVE, BOB]},
)


def _value(record: Fields, field: str) -> Any:
    if field.startswith("provenance."):
        return record["provenance"].get(field.removeprefix("provenance."))
    return record["metadata"].get(field) if field == "topic" else record.get(field)


def _holds(record: Fields, field: str, wanted: Any) -> bool:
    value = _value(record, field)
    values = value if isinstance(value, list) else [value]
    match wanted:
        case {"ne": other}:
            return other not in values
        case {"exists": there}:
            return (value is not None) is there
        case {"prefix": begin}:
            return isinstance(value, str) and value.startswith(begin)
        case {"gte": least}:
            return isinstance(value, type(least)) and value >= least
        case {"in": [*others]} | [*others]:
            return any(v in others for v in values)
        case _:
            return wanted in values


def wheres() -> Iterator[tuple[Fields, Keep]]:
    """Filters by every field that may tell of an owner, with values of everybody's."""
    conditions: list[tuple[str, Any]] = []
    for owner in (ANN, BOB, EVE):
        mark = MARKS[owner]
        conditions += [("owner", owner), ("owner", {"ne": owner}), ("session", f"{mark}session")]
        conditions += [
            ("key", f"{mark}key/semantic"),
            ("group", f"{mark}group/episodic"),
            ("topic", f"{mark}topic"),
        ]
        conditions += [("uri", f"https://{mark}.example/working"), ("id", f"{mark}-id-working")]
        conditions += [(f"provenance.{part}", f"{mark}{part}") for part in ("source", "principal", "client")]
        conditions += [("provenance.derived_from", f"{mark}-id-working")]
    conditions += [("owner", value) for value in ([*OWNERS], {"in": [BOB, EVE]}, None, {"exists": True})]
    conditions += [("session", "talk"), ("group", "pair/semantic"), ("provenance.source", "web")]
    conditions += [("provenance.derived_from", {"exists": True}), ("topic", {"exists": True})]
    conditions += [("provenance.source", {"ne": "web"}), ("provenance.method", "remember")]
    conditions += [("session", {"ne": "talk"})]
    for field, wanted in conditions:
        yield {field: wanted}, lambda r, f=field, w=wanted: _holds(r, f, w)


RANGES: Sequence[tuple[str, Any]] = (
    ("owner", {"prefix": "acme"}),
    ("owner", {"gte": ""}),
    ("id", {"gte": "e"}),
    ("session", {"prefix": "evef"}),
    ("provenance.source", {"prefix": "bobf"}),
    ("provenance.at", {"gte": AT}),
)
"""Filters that not every engine can decide."""


def in_tiers(
    params: Fields, keep: Keep | None, *, tiers: Sequence[str | None] = (None, *TIERS)
) -> Iterator[Ask]:
    for tier in tiers:
        if tier is None:
            yield Ask(params, keep)
        else:
            kept = None if keep is None else lambda r, t=tier, k=keep: r["tier"] == t and k(r)
            yield Ask({**params, "tier": tier}, kept)


def filters() -> Iterator[tuple[Fields, Keep]]:
    yield {}, everything
    for where, keep in wheres():
        yield {"where": where}, keep
    for field, wanted in RANGES:
        yield {"where": {field: wanted}}, lambda r, f=field, w=wanted: _holds(r, f, w)
    for prefix in ("shared", *(f"{MARKS[owner]}key" for owner in (ANN, BOB, EVE))):
        yield {"key_prefix": prefix}, lambda r, p=prefix: r["key"].startswith(f"{p}/")


def words() -> Iterator[tuple[Fields, Keep]]:
    for word in (COMMON, *(f"{MARKS[owner]}content" for owner in (ANN, BOB, EVE))):
        yield {"query": word}, lambda r, w=word: w in r["content"].split()


def named() -> Iterator[tuple[Fields, Keep]]:
    """Ids: of each owner, of all, and of none."""
    lists = [[i for i in IDS if i.startswith(MARKS[owner])] for owner in OWNERS]
    for ids in (*lists, IDS, ["nothing-of-that-name"]):
        yield {"ids": ids}, lambda r, i=ids: r["id"] in i


def with_owners(params: Fields = {}) -> Iterator[Ask]:  # noqa: B006 never changed
    for form in ({}, *OWNER_FORMS):
        yield Ask({**params, **form})


def timelines() -> Iterator[Ask]:
    for params, keep in filters():
        yield from in_tiers(params, keep)
    for more in ({"limit": 1}, {"order": "key"}, {"prompt": {"cite": True}}, {"embeddings": True}):
        yield from in_tiers(more, None)
    yield from with_owners()
    yield from with_owners({"tier": "semantic", "order": "key"})


def recalls() -> Iterator[Ask]:
    most: Fields = {"query": COMMON, "limit": 1000}
    for params, keep in filters():
        yield from in_tiers({**most, **params}, keep)
    for params, keep in words():
        yield from in_tiers({"limit": 1000, **params, "explain": True, "prompt": {"cite": True}}, keep)
    extras: Sequence[Fields] = (
        {"limit": 1},
        {"embedding": [1.0, 0.0, 0.0], "limit": 1000, "explain": True},
        {"embedding": [1.0, 0.0], "limit": 1000},
        {**most, "embeddings": True, "features": True, "candidates": 1000, "touch": False},
        {**most, "min_score": 0.0, "embedding": [1.0, 0.0, 0.0], "embedding_model": "m"},
    )
    for more in extras:
        yield from in_tiers(more, None)
    yield from with_owners({**most, "explain": True})


def selecting(**more: Any) -> Iterator[Ask]:
    """For methods that pick what they change: over all tiers, and each filter in one tier or another."""
    for at, (params, keep) in enumerate((*filters(), *words(), *named())):
        tiers = (None, *TIERS) if at % 8 == 0 else (None, TIERS[at % 4])
        for ask in in_tiers({**more, **params}, keep, tiers=tiers):
            if ask.params.keys() - more.keys():
                yield ask
    yield from with_owners({**more, "ids": IDS})


def contexts() -> Iterator[Ask]:
    for session in ("talk", *(f"{MARKS[owner]}session" for owner in OWNERS)):
        for query in (COMMON, f"{MARKS[BOB]}content", f"{MARKS[EVE]}words"):
            yield Ask({"session": session, "query": query, "task": query, "limits": {"episodes": 100}})
    yield from (Ask({"query": COMMON, "where": where}) for where, _ in wheres())
    yield from with_owners({"session": "talk", "query": COMMON})


def writings() -> Iterator[Ask]:
    plain = {"content": "a new one"}
    for record in EVERYTHING:
        yield Ask({"records": [{**plain, "id": record["id"]}]})
        yield Ask({"records": [{**plain, "key": record["key"], "tier": record["tier"]}]})
        yield Ask({"records": [{**plain, "session": record["session"], "group": record["group"]}]})
    for record_id in GONE.values():
        yield Ask({"records": [{**plain, "id": record_id}]})
    for owner in (*OWNERS, *ODD_OWNERS):
        yield Ask({"records": [{**plain, "owner": owner}]})
        yield Ask({"records": [plain], "owner": owner, "session": f"{MARKS[EVE]}session"})
    for record in EVERYTHING[::3]:
        told = {"derived_from": [record["id"]], "source": record["provenance"]["source"], "at": AT}
        yield Ask({"records": [{**plain, "provenance": told, "tier": "semantic"}]})
    yield Ask({"records": [{**plain, "embedding": [1.0, 0.0]}]})
    yield Ask({"records": EVERYTHING[8:10], "transfer": True})


def of_each_id(**more: Any) -> Iterator[Ask]:
    for record_id in (*IDS, "nothing-of-that-name"):
        yield Ask({"id": record_id, **more})


def etags(**more: Any) -> Iterator[Ask]:
    for record_id in (*IDS, "nothing-of-that-name"):
        yield Ask({"records": [{"id": record_id, "etag": "1"}], **more})


def lists_of_ids(**more: Any) -> Iterator[Ask]:
    for params, _ in named():
        yield Ask({**params, **more})


def listings() -> Iterator[Ask]:
    for params, keep in (*filters(), *words(), *named()):
        yield from in_tiers(params, keep)
    yield from (Ask(more) for more in ({"limit": 1}, {"without": "m"}, {"arrived": True}))
    yield from with_owners()


def embeddings() -> Iterator[Ask]:
    for record_id in IDS:
        seen = {"id": record_id, "etag": "1", "embedding": [0.0, 1.0, 0.0], "embedding_model": "m"}
        yield Ask({"records": [seen]})


def graves() -> Iterator[Ask]:
    yield from lists_of_ids()
    yield from (Ask({"limit": limit}) for limit in (1, 2, 1000))
    yield Ask({"limit": 1, "after": [0, ""]})
    for owner in OWNERS:
        grave: Fields = {"id": f"{MARKS[owner]}-id-working", "reason": "forgotten", "seq": 2**52}
        yield Ask({"tombstones": [grave if owner is None else {**grave, "owner": owner}]})


def purges() -> Iterator[Ask]:
    for source in ("web", "nothing", *(f"{MARKS[owner]}source" for owner in OWNERS)):
        for more in ({}, {"dry": True}, {"since": AT}, {"since": "2200-01-01T00:00:00Z"}):
            yield Ask({"source": source, **more})
    yield from with_owners({"source": "web"})


def pendings() -> Iterator[Ask]:
    yield from in_tiers({}, None)
    for more in ({"conflicts": True}, {"limit": 1}, {"key_prefix": "shared"}):
        yield Ask(more)
    for where, _ in wheres():
        yield Ask({"where": where, "conflicts": True})
    for owner in OWNERS:
        yield Ask({"where": {"provenance.contests": f"{MARKS[owner]}key/semantic"}})
    yield from with_owners({"conflicts": True})


def decisions() -> Iterator[Ask]:
    ids = [record["id"] for record in DOUBTED]
    for one in (*ids, IDS[0], "nothing-of-that-name"):
        yield Ask({"ids": [one]})
    yield Ask({"ids": ids})
    yield from with_owners({"ids": ids})


def judgements() -> Iterator[Ask]:
    for record_id in (*IDS, "nothing-of-that-name"):
        yield Ask({"records": [{"id": record_id, "etag": "1", "status": "superseded", "approved": "me"}]})


def keys() -> Iterator[Ask]:
    for record in EVERYTHING:
        yield Ask({"key": record["key"]}, lambda r, k=record["key"]: r["key"] == k)
    yield from with_owners({"key": "shared/semantic"})


def sessions() -> Iterator[Ask]:
    for session in ("talk", "nothing", *(f"{MARKS[owner]}session" for owner in OWNERS)):
        yield Ask({"session": session})
    yield from with_owners({"session": "talk"})


def promotions() -> Iterator[Ask]:
    for params, keep in named():
        for tier in TIERS:
            yield Ask({**params, "tier": tier}, lambda r, t=tier, k=keep: r["tier"] != t and k(r))
    yield from with_owners({"ids": IDS, "tier": "semantic"})


def reinforcements() -> Iterator[Ask]:
    for params, keep in named():
        yield Ask({**params, "amount": 2}, keep)
    yield from with_owners({"ids": IDS})


def polls() -> Iterator[Ask]:
    for cursor in ("", None, "0.0", "x"):
        yield from (Ask({"cursor": cursor, **more}) for more in ({}, {"limit": 1}, {"kinds": ["written"]}))
    yield from with_owners({"cursor": ""})


TABLE: Mapping[str, Callable[[], Iterator[Ask]]] = {
    "describe": lambda: with_owners({"protocol": "a2m/0.1"}),
    "held": lambda: with_owners({}),
    "recall": recalls,
    "timeline": timelines,
    "fetch": keys,
    "session/list": with_owners,
    "events": polls,
    "events/subscribe": with_owners,
    "events/unsubscribe": with_owners,
    "context": contexts,
    "trace": lambda: iter([*of_each_id(), *with_owners({"id": f"{MARKS[ANN]}-id-semantic"})]),
    "remember": writings,
    "forget": selecting,
    "promote": promotions,
    "consolidate": with_owners,
    "reinforce": reinforcements,
    "session/close": sessions,
    "summarize": lambda: selecting(limit=100),
    "purge": purges,
    "pending": pendings,
    "approve": decisions,
    "reject": decisions,
    "judge": judgements,
    "forget_if": lambda: etags(reason="forgotten"),
    "tombstones": graves,
    "list": listings,
    "read": lists_of_ids,
    "touch": lambda: lists_of_ids(at=AT),
    "embed": embeddings,
    "reembed": lambda: in_tiers({}, None),
    "relocate": lambda: in_tiers({"url": "http://127.0.0.1:1"}, "semantic"),
    "settle": etags,
    "remnants": lists_of_ids,
    "erase": lambda: lists_of_ids(dry=True),
}
"""By method, without `memory/`."""
