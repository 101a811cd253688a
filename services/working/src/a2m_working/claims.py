"""On a Cluster: which bucket each id and key belongs to, and which buckets there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import chain

from a2m_server.values import Tombstone
from a2m_working.database import Argument, Database, by_name
from a2m_working.layout import DAY_MS, encode
from a2m_working.listing import forgotten

TAGS = 256


@dataclass(frozen=True, slots=True)
class Claim:
    """A bucket's tag, and how often the id or key was claimed.

    `journeys` are those that the record has begun, each from a bucket to another, and may not have ended.
    """

    tag: str
    number: str
    journeys: tuple[tuple[str, str], ...] = ()

    @property
    def others(self) -> list[str]:
        """The buckets in which a crash may have left the record as well."""
        return [tag for tag in dict.fromkeys(chain(*self.journeys)) if tag != self.tag]


class Claims:
    """The directory, each entry in a slot of its own. It leads to buckets; what is true, a bucket says.

    Whoever writes claims first, so an entry is there before its record. An entry moves to another bucket only
    after a fence in the old one has turned away those who claimed it before.
    """

    def __init__(self, database: Database, prefix: str, grave_ms: int) -> None:
        self._database = database
        self._prefix = prefix + "d:"
        self._grave_ms = grave_ms
        # Longer than a tombstone, which is found by its claim.
        self._keep_ms = grave_ms + DAY_MS

    async def take_id(self, record_id: str, home: str) -> Claim:
        """The claim of an id: the one that exists, else `home`'s."""
        return await self._must(self._id(record_id), "take", home)

    async def take_key(self, owner: str | None, key: str, home: str) -> Claim:
        claim = await self._must(self._key(owner, key), "take", home)
        await self._database.command("SADD", f"{self._prefix}o:{key}", encode(owner))
        return claim

    async def id(self, record_id: str) -> Claim | None:
        return await self._run(self._id(record_id), "look")

    async def ids(self, ids: Sequence[str]) -> dict[str, Claim]:
        """The claims that exist of `ids`."""
        found = await self._database.together(self.id(record_id) for record_id in ids)
        return {i: claim for i, claim in zip(ids, found, strict=True) if claim is not None}

    async def key(self, owner: str | None, key: str) -> Claim | None:
        return await self._run(self._key(owner, key), "look")

    async def move_id(self, record_id: str, held: Claim, home: str) -> bool:
        """Give an id to another bucket unless it was claimed meanwhile."""
        return await self._move(self._id(record_id), held, home)

    async def move_key(self, owner: str | None, key: str, held: Claim, home: str) -> bool:
        return await self._move(self._key(owner, key), held, home)

    async def part(self, record_id: str, before: str, home: str) -> None:
        """Note that a record is about to be in two buckets."""
        await self._run(self._id(record_id), "part", f"{before}>{home}")

    async def join(self, record_id: str, before: str, home: str) -> None:
        """Note that it is in one of them alone."""
        await self._run(self._id(record_id), "join", f"{before}>{home}")

    async def release_id(self, record_id: str, held: Claim) -> None:
        """Let a claim expire with its tombstone unless the id was claimed meanwhile."""
        await self._run(self._id(record_id), "release", held.number, self._keep_ms)

    async def release_key(self, owner: str | None, key: str, held: Claim) -> None:
        await self._run(self._key(owner, key), "release", held.number, self._keep_ms)

    async def owners(self, key: str) -> list[bytes]:
        """The owners (encoded) that ever held a key."""
        return await self._database.command("SMEMBERS", f"{self._prefix}o:{key}")

    async def register(self, tag: str, owner: str | None, session: str | None) -> None:
        """List a bucket, so that scans and sessions find it; it stays listed."""
        await self._database.command("ZADD", self._prefix + "b", 0, tag)
        await self._database.command("ZADD", f"{self._prefix}b:{encode(owner)}", 0, tag)
        await self.register_session(tag, session)

    async def register_session(self, tag: str, session: str | None) -> None:
        await self._database.command("SADD", f"{self._prefix}q:{encode(session)}", tag)

    async def buckets(self, owner: str | None, size: int) -> AsyncIterator[list[str]]:
        """Tags of an owner's (encoded; None for all) buckets, empty ones too."""
        registry = self._prefix + "b" if owner is None else f"{self._prefix}b:{owner}"
        async for tags in by_name(self._database, registry, size):
            yield tags

    async def buckets_of(self, session: str) -> list[str]:
        """Tags of every owner's bucket of a session (encoded)."""
        return [
            tag.decode() for tag in await self._database.command("SMEMBERS", f"{self._prefix}q:{session}")
        ]

    async def list_forgotten(self, stones: Sequence[Tombstone]) -> None:
        """List the tombstones among these that are of what was forgotten."""
        arguments: list[Argument] = [self._grave_ms]
        for stone in stones:
            if stone.reason == "forgotten":
                arguments += [stone.seq, stone.id]
        if len(arguments) > 1:
            await self._database.write("listing", self._prefix + "g", arguments)

    async def forgotten(self, limit: int, after: tuple[int, str] | None) -> list[tuple[int, str]]:
        return await forgotten(self._database, self._prefix + "g", self._grave_ms, limit, after)

    async def width(self, given: int | None) -> int | None:
        """The width of the store's vectors, which the first one `given` fixes."""
        if given is not None:
            await self._database.command("SET", self._prefix + "w", given, "NX")
        stored = await self._database.command("GET", self._prefix + "w")
        return int(stored) if stored else None

    def _id(self, record_id: str) -> str:
        return f"{self._prefix}i:{record_id}"

    def _key(self, owner: str | None, key: str) -> str:
        return f"{self._prefix}k:{encode(owner)}\0{key}"

    async def _move(self, key: str, held: Claim, home: str) -> bool:
        now = await self._run(key, "move", held.number, home)
        return now is not None and now.tag == home

    async def _must(self, key: str, *arguments: Argument) -> Claim:
        claim = await self._run(key, *arguments)
        assert claim is not None, "a claim that was taken exists"  # noqa: S101 the script's own promise
        return claim

    async def _run(self, key: str, *arguments: Argument) -> Claim | None:
        answer = await self._database.write("claim", key, arguments)
        if not answer:
            return None
        tag, number, journeys = (part.decode() for part in answer)
        ends = (journey.partition(">") for journey in journeys.split())
        return Claim(tag, number, tuple((before, home) for before, _, home in ends))
