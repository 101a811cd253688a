"""What a check is handed: the server, and a corner of it that is the check's own."""

import asyncio
import random
import string
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from a2m_conformance.http import HttpWire
from a2m_conformance.outcome import CheckFailure, NotApplicable, Unreachable, expect
from a2m_conformance.shapes import Json, is_list, is_object, part
from a2m_conformance.stdio import StdioWire
from a2m_conformance.wire import Refusal, Wire

MARKER = "a2m_check"
_PATIENCE = 5.0


class Probe:
    """A server seen by one check.

    Everything that `write` writes carries this check's `mark` in its metadata, a session of its own, and is
    forgotten in `clean`; `mine` and `found` read that and nothing else, so that checks neither see each other
    nor what the store held before.
    """

    def __init__(
        self, wire: Wire, about: Json, *, read_only: bool = False, dimensions: int | None = 8
    ) -> None:
        self.wire = wire
        self.about = about
        self.read_only = read_only
        self.mark = self.word()
        self.session = f"session-{self.mark}"
        self.mine_where: dict[str, Json] = {MARKER: self.mark}
        self._first_dimensions = dimensions
        self._written: defaultdict[str | None, list[str]] = defaultdict(list)

    @property
    def http(self) -> HttpWire:
        """The wire, for checks of HTTP alone."""
        if not isinstance(self.wire, HttpWire):
            raise NotApplicable("not over HTTP")
        return self.wire

    @property
    def stdio(self) -> StdioWire:
        """The wire, for checks of stdio alone."""
        if not isinstance(self.wire, StdioWire):
            raise NotApplicable("not over stdio")
        return self.wire

    @property
    def capabilities(self) -> frozenset[str]:
        """What the server declares."""
        return frozenset(self.about["capabilities"])

    @property
    def tiers(self) -> list[str]:
        """The names of the declared tiers, in their order."""
        return [tier["name"] for tier in self.about.get("tiers", [])]

    @property
    def limits(self) -> dict[str, int]:
        """The declared limits, empty without any."""
        return self.about.get("limits") or {}

    @property
    def width(self) -> int | None:
        """The width of the store's vectors, or the one with which we may fix it."""
        return part(self.about.get("embeddings"), "dimensions") or self._first_dimensions

    @property
    def dimensions(self) -> int:
        """The width, for checks that make no sense without vectors."""
        if self.width is None:
            raise NotApplicable("the store has no width of vectors yet: --dimensions N would fix one")
        return self.width

    def has(self, capability: str) -> bool:
        """Whether a capability is declared."""
        return capability in self.capabilities

    def word(self) -> str:
        """A word that nobody ever wrote."""
        return "".join(random.choices(string.ascii_lowercase, k=12))  # noqa: S311 - not a secret

    def vector(self, *values: float) -> list[float]:
        """A vector of the store's width that begins with `values` and goes on in zeros."""
        if self.dimensions < len(values):
            raise NotApplicable(f"vectors of {self.dimensions} are too narrow for this check")
        return [*values, *[0.0] * (self.dimensions - len(values))]

    async def answer(self, method: str, params: Json) -> Json | Refusal:
        """Call `memory/METHOD`: its result, or the refusal."""
        envelope = await self.wire.request(f"memory/{method}", params)
        error = envelope.get("error")
        if error is None:
            return envelope.get("result")
        if not is_object(error):
            raise CheckFailure(f"{method}: the error is no object")
        return Refusal(error.get("code", 0), str(error.get("message")), error.get("data"))

    async def call(self, method: str, **params: Json) -> Json:
        """Call `memory/METHOD` and return its result, which must be an object; a refusal is a failure."""
        result = await self.answer(method, params)
        if isinstance(result, Refusal):
            raise CheckFailure(f"{method} {_brief(params)} was refused: {result.code} {result.message}")
        expect(is_object(result), f"{method}: the result is no object")
        return result

    async def refused(self, method: str, params: Json, *codes: int) -> Refusal:
        """Call `memory/METHOD`, which must be refused with one of `codes`."""
        wanted = " or ".join(map(str, codes))
        result = await self.answer(method, params)
        if not isinstance(result, Refusal):
            self._note_ids(params, result)
            raise CheckFailure(f"{method} {_brief(params)} was answered, {wanted} was expected")
        if result.code not in codes:
            raise CheckFailure(f"{method} {_brief(params)}: {wanted} was expected, got {result.code}")
        return result

    def record(self, content: str | None = None, /, **fields: Json) -> dict[str, Json]:
        """A record of this check's own: marked, in its session, unless `fields` say otherwise."""
        record: dict[str, Json] = {} if content is None else {"content": content}
        if self.has("sessions"):
            record["session"] = self.session
        record |= fields
        if is_object(record.get("metadata", {})):
            record["metadata"] = {**self.mine_where, **record.get("metadata", {})}
        return record

    async def write(self, *records: str | dict[str, Json], **params: Json) -> list[str]:
        """Remember records (contents alone, or made by `record`) in one call and return their ids."""
        full = [self.record(item) if isinstance(item, str) else item for item in records]
        result = await self.call("remember", records=full, **params)
        self._note_ids({"records": full, **params}, result)
        ids = result.get("ids")
        expect(is_list(ids), "remember returned no list of ids")
        expect(len(ids) == len(full), f"remember of {len(full)} records returned {len(ids)} ids")
        return ids

    async def write_each(self, records: Iterable[str | dict[str, Json]]) -> list[str]:
        """Remember records one after the other, a call each."""
        return [(await self.write(record))[0] for record in records]

    async def mine(self, **params: Json) -> list[Json]:
        """The timeline of what this check wrote; a `where` of the caller is added to that."""
        return await self._records("timeline", params)

    async def found(self, query: str | None = None, **params: Json) -> list[Json]:
        """Recall among what this check wrote."""
        return await self._records("recall", params if query is None else {"query": query, **params})

    async def read(self, identifier: str, **params: Json) -> Json | None:
        """The record of one id, wherever it is, or None."""
        result = await self.call("timeline", where={"id": identifier}, **params)
        return next((record for record in result["records"] if record.get("id") == identifier), None)

    async def tries(self, patience: float = _PATIENCE) -> AsyncIterator[int]:
        """Attempts until a deadline, for what a server may do in the background."""
        deadline = asyncio.get_running_loop().time() + patience
        attempt = 0
        while True:
            yield attempt
            attempt += 1
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(min(0.02 * attempt, 0.2))

    async def clean(self) -> None:
        """Forget what was written, as far as the server lets us."""
        for owner, ids in self._written.items():
            scope = {} if owner is None else {"owner": owner}
            with suppress(CheckFailure, Unreachable):
                await self.answer("forget", {"ids": ids, **scope})
        self._written.clear()

    async def _records(self, method: str, params: dict[str, Json]) -> list[Json]:
        where = {**self.mine_where, **params.pop("where", {})}
        result = await self.call(method, where=where, **params)
        records = result.get("records")
        expect(is_list(records), f"{method} returned no list of records")
        expect(all(is_object(record) for record in records), f"{method} returned what is no record")
        return records

    def _note_ids(self, params: Json, result: Json) -> None:
        if not is_object(result) or not is_object(params):
            return
        records = params.get("records")
        for number, identifier in enumerate(result.get("ids") or []):
            if not isinstance(identifier, str):
                continue
            given: Json = records[number] if is_list(records) and number < len(records) else None
            owner = part(given, "owner", params.get("owner"))
            self._written[owner if isinstance(owner, str) else None].append(identifier)


def _brief(params: Json) -> str:
    text = repr(params)
    return text if len(text) < 160 else text[:160] + "…"
