"""What a record has from those that it was derived from, put into its provenance when it is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from a2m_protocol.errors import quota_exceeded
from a2m_protocol.types import MAX_SOURCES, Draft, Provenance, Record
from a2m_server.call import Call
from a2m_server.values import Filter, Page


async def with_origins(call: Call, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts, each with the origins of what it was derived from, as far as the caller sees that.

    One look at the records named, where there are any. What a router has put there stands.
    """
    named = [i for draft in drafts if _is_open(draft.provenance) for i in _sources_of(draft)]
    if not named:
        return [*drafts]
    found = await call.store.timeline(Page(Filter(call.scope, ids=tuple(dict.fromkeys(named)))))
    there = {record.id: record for record in found.records}
    return [_derived(draft, [there[i] for i in _sources_of(draft) if i in there]) for draft in drafts]


def inherited(told: Provenance, sources: Iterable[Record]) -> Provenance:
    """A provenance with what it has from the records `sources`.

    Raises -32006 for more than `MAX_SOURCES` origins. Of ancestors, the nearest are kept.
    """
    known = [record.provenance for record in sources if record.provenance is not None]
    origins = [s for one in known for s in ([one.source] if one.source else []) + (one.origins or [])]
    above = [i for one in known for i in one.derived_from or []] + [
        i for o in known for i in o.ancestors or []
    ]
    origins, above = [*dict.fromkeys(origins)], [*dict.fromkeys(above)]
    if len(origins) > MAX_SOURCES:
        raise quota_exceeded(
            f"derived_from: {len(origins)} sources stand behind these records, and at most {MAX_SOURCES} are "
            "kept of one: derive it from fewer"
        )
    kept = [i for i in above if i not in {*(told.derived_from or ())}][:MAX_SOURCES]
    return told.model_copy(update={"origins": origins or None, "ancestors": kept or None})


def _is_open(told: Provenance | None) -> bool:
    return told is not None and told.origins is None and told.ancestors is None


def _sources_of(draft: Draft) -> Sequence[str]:
    return (draft.provenance.derived_from if draft.provenance is not None else None) or ()


def _derived(draft: Draft, sources: Sequence[Record]) -> Draft:
    if draft.provenance is None or not sources or not _is_open(draft.provenance):
        return draft
    return draft.model_copy(update={"provenance": inherited(draft.provenance, sources)})
