"""Written records from JSON: what a client may set, and what a transfer keeps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

from pydantic import ValidationError

from a2m_protocol.clock import MAX_SEQ, created_at_of, format_ms, parse_ms, seq_of
from a2m_protocol.errors import invalid_params, quota_exceeded
from a2m_protocol.ids import new_id
from a2m_protocol.types import FIELDS, Capability, Draft, Provenance, explain
from a2m_server.call import Call, check_owner
from a2m_server.params import kind_of
from a2m_server.sequence import AHEAD

ASSIGNED = frozenset({"created_at", "revision", "access_count", "accessed_at"})
"""Declared fields that the server assigns: checked when a client gives them, then set aside."""

KEPT = frozenset(
    {"created_at", "seq", "revision", "moves", "access_count", "accessed_at", "status", "arrival"}
)
"""What a transfer keeps and no other write may set."""

ROUTERS = frozenset({"embedding_model", "features", "aliases", "provenance"})
"""What a router may set in any write."""

TOLD = ("source", "derived_from")
"""The parts of a provenance that are a client's to say."""

FOUND = ("contests", "approved", "origins", "ancestors")
"""Those that a router finds out."""


def read_drafts(call: Call, *, transfer: bool = False) -> list[Draft]:
    """The `records` of a call.

    Raises `A2MError`: -32602 for a wrong type or too many, -32006 for content that is too long, -32005 for an
    owner whose records the caller may not write.
    """
    records = call.params.objects("records")
    if not records:
        raise invalid_params("records: expected an array of at least one record")
    most = call.server.limits.max_records_per_call
    if len(records) > most:
        raise invalid_params(f"records: {len(records)} records, and at most {most} are allowed in one call")
    reader = _Reader(call, transfer)
    return [reader.read(fields, f"records[{index}]") for index, fields in enumerate(records)]


class _Reader:
    def __init__(self, call: Call, transfer: bool) -> None:
        self._call = call
        self._transfer = transfer
        self._privileged = call.privileged
        self._longest = call.server.limits.max_content_length
        self._allowed = _allowed(call.capabilities, self._privileged, transfer)
        # What a transfer brings keeps the owner that it has, be it none.
        self._owner = call.writes.owner if not transfer or "owner" in call.params else None
        self._session = call.params.name("session") if call.has(Capability.SESSIONS) else None
        self._latest = time.time_ns() // 1_000 + AHEAD

    def read(self, fields: Mapping[str, object], path: str) -> Draft:
        given = {name: value for name, value in fields.items() if name in self._allowed}
        self._check_content(given, path)
        record_id = given.get("id")
        if record_id is None:
            given["id"] = new_id()
        given["chosen"] = record_id is not None
        if self._owner is not None and "owner" not in given:
            given["owner"] = self._owner
        if self._session is not None and "session" not in given:
            given["session"] = self._session
        if not self._transfer:
            given |= self._origin(fields, f"{path}.provenance")
        draft = _validate(given, path)
        check_owner(self._call, draft.owner, path)
        if self._transfer:
            self._check_order(draft, path)
        if not self._transfer and not ASSIGNED.isdisjoint(given):
            # Valid or not is the client's business; the values are the server's.
            draft = _validate({name: given[name] for name in given.keys() - ASSIGNED}, path)
        return draft

    def _origin(self, fields: Mapping[str, object], path: str) -> dict[str, object]:
        """A provenance: of others than routers what they are told to say, and what we know; and a status.

        A router passes on what stood where the record came in, and what it decided of it. Where nobody has
        to show who he is, it is a router by what it says alone, and not believed in who wrote.
        """
        told = fields.get("provenance")
        given = cast("dict[str, object]", told) if isinstance(told, dict) else {}
        caller = self._call.peer.caller
        passed_on = "at" in given and self._privileged and caller.name is None
        status = {"status": fields["status"]} if passed_on and "status" in fields else {}
        if passed_on and caller.trusted:
            return {"provenance": given, **status}
        parts = (*TOLD, *FOUND) if passed_on else TOLD
        return {"provenance": stamped(self._call, "remember", _told(given, parts, path)), **status}

    def _check_order(self, draft: Draft, path: str) -> None:
        """Refuse a place in the order out of range, or so late that its session would be carried along."""
        seqs: dict[str, int] = {}
        if draft.seq is not None:
            seqs["seq"] = draft.seq
        if draft.created_at is not None:
            seqs["created_at"] = seq_of(parse_ms(draft.created_at))
        for name, seq in seqs.items():
            if abs(seq) > MAX_SEQ:
                raise invalid_params(f"{path}.{name}: expected a time between the years 1685 and 2255")
            if seq > self._latest:
                raise invalid_params(
                    f"{path}.{name}: {created_at_of(seq)} is more than a day ahead of this server's clock: "
                    "correct it, or the clock"
                )

    def _check_content(self, given: Mapping[str, object], path: str) -> None:
        content = given.get("content")
        if content is None and "content" not in given:
            if given.get("uri") is None:
                raise invalid_params(f"{path}.content: is missing; expected a string")
        elif not isinstance(content, str):
            raise invalid_params(f"{path}.content: expected a string, not {kind_of(content)}")
        elif len(content) > self._longest:
            raise quota_exceeded(
                f"{path}.content: {len(content)} characters, and at most {self._longest} are allowed"
            )


@lru_cache(maxsize=64)
def _allowed(capabilities: frozenset[Capability], privileged: bool, transfer: bool) -> frozenset[str]:
    names = {name for capability in capabilities for name in FIELDS.get(capability, ())}
    if transfer:
        names |= KEPT
    if privileged:
        names |= ROUTERS
    return frozenset(names)


def _validate(given: Mapping[str, object], path: str) -> Draft:
    try:
        return Draft.model_validate(given)
    except ValidationError as error:
        raise invalid_params(explain(error, path)) from error


def stamped(call: Call, method: str, told: Provenance) -> Provenance:
    """A provenance as this server asserts it, with what it was `told`."""
    asserted = {
        "principal": call.peer.caller.name,
        "authority": call.peer.caller.authority,
        "method": method,
        "client": call.peer.client,
        "at": format_ms(time.time_ns() // 1_000_000),
    }
    return told.model_copy(update=asserted)


def _told(given: Mapping[str, object], parts: Sequence[str], path: str) -> Provenance:
    """The parts of a provenance that are another's to say; others are ignored."""
    try:
        return Provenance.model_validate({part: given[part] for part in parts if part in given})
    except ValidationError as error:
        raise invalid_params(explain(error, path)) from error
