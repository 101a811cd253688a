"""What one client was told, and whether the federation agrees: a model to hold the invariants against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from harness import TIERS, Federation

from a2m_protocol.errors import A2MError

Fate = Literal["kept", "gone", "either"]
Fields = dict[str, Any]

_BY_A_MOVE = frozenset({"tier", "etag", "moves", "arrival", "score"})
"""What a move changes in a record as a tier tells it; nothing else (I6)."""


@dataclass
class Told:
    """A record as its client knows it.

    `kept`: the write was acknowledged. `gone`: so was the forgetting. `either`: a call failed, and who made
    it cannot know. Of `contents` and `revisions` any is right. `home` is the tier where it belongs once all
    is quiet, if that is known. `whole` is the record as a tier told it before the fault.
    """

    sent: Fields
    contents: set[str]
    revisions: set[int] = field(default_factory=lambda: {0})
    fate: Fate = "kept"
    home: str | None = None
    whole: Fields | None = None

    @property
    def id(self) -> str:
        return str(self.sent["id"])

    def rewritten(self, content: str, *, surely: bool) -> None:
        """Note the first rewrite of a key, which happened surely or perhaps."""
        self.contents = {content} if surely else self.contents | {content}
        self.revisions = {1} if surely else {0, 1}


class Account:
    """One client: an owner and a session of its own, all that it wrote in order, and what became of it.

    Every content begins with `mark`, a word that nobody else uses. `batches` are ids of which all or none
    may be there, but for what a failed write said that `stays`.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.mark = f"mark{uuid4().hex[:12]}"
        self.owner = f"ana-{self.mark}"
        self.session = f"talk-{self.mark}"
        self.told: dict[str, Told] = {}
        self.batches: list[list[str]] = []
        self.stays: set[str] = set()
        self.cursor: str | None = None

    def draft(self, name: str, words: str = "", **fields: Any) -> Fields:
        """A record to write; its id follows from `name`, so that it can be written again."""
        return {"id": f"{self.mark}/{name}", "content": f"{self.mark} {name} {words}".strip(), **fields}

    def remember(self, *drafts: Fields) -> None:
        """Write a batch, and note that it was acknowledged."""
        self.send(*drafts)
        self.note(drafts)

    def send(self, *drafts: Fields) -> list[str]:
        """Write a batch, noting nothing; its ids."""
        return self.call("remember", records=[*drafts], session=self.session)["ids"]

    def note(self, drafts: Iterable[Fields], fate: Fate = "kept") -> None:
        """Note records that were written, surely or perhaps."""
        drafts = [*drafts]
        for draft in drafts:
            self.told[draft["id"]] = Told(draft, {draft["content"]}, fate=fate, home=draft.get("tier"))
        if fate == "either":
            self.batches.append([draft["id"] for draft in drafts])

    def call(self, method: str, **params: Any) -> Fields:
        """Call the router as this client."""
        return self.federation.router.call(method, owner=self.owner, **params)

    def look(self) -> None:
        """Take every record as it is now for what a move must not change."""
        for records in self._whole().values():
            for record_id, record in records.items():
                self.told[record_id].whole = record

    def retry(self) -> None:
        """Write everything that was acknowledged again, as after lost responses.

        What has no key is written as a plain turn, which asks working alone.
        """
        drafts = [told.sent for told in self.told.values() if told.fate == "kept"]
        turns = [{n: v for n, v in d.items() if n != "tier"} for d in drafts if "key" not in d]
        for batch in (turns, [draft for draft in drafts if "key" in draft]):
            if batch:
                assert self.send(*batch) == [draft["id"] for draft in batch]

    def bring_back(self) -> None:
        """Try to bring in what was forgotten, as a restore of a backup would; all of it must be refused."""
        records = [t.whole for t in self.told.values() if t.fate == "gone" and t.whole is not None]
        if records:
            self.federation.router.call("remember", records=records, transfer=True)

    def failed(self, error: A2MError) -> None:
        """Note what a failed write said that stays."""
        stays = (error.data or {}).get("stays")
        self.stays = {str(i) for i in stays} if isinstance(stays, list) else set()

    def problems(self) -> list[str]:
        """What contradicts what this client was told, each with the invariant that it breaks."""
        whole = self._whole()
        where = {i: [tier for tier in TIERS if i in whole[tier]] for i in self.told}
        return [
            *self._places(where),
            *self._values(whole),
            *self._shown(where),
            *self._keys(where),
            *self._groups(whole),
            *self._foreign(),
        ]

    def _whole(self) -> dict[str, dict[str, Fields]]:
        """Every record of this client in each tier itself."""
        tiers = self.federation.tiers
        ids = [*self.told]
        return {t: {r["id"]: r for r in tiers[t].call("read", ids=ids)["records"]} for t in TIERS}

    def _places(self, where: dict[str, list[str]]) -> list[str]:
        found: list[str] = []
        for told in self.told.values():
            tiers = where[told.id]
            if told.fate == "kept" and not tiers:
                found.append(f"I1: {told.id} is lost")
            if told.fate == "gone" and tiers:
                found.append(f"I3: {told.id} is back in {tiers}")
            if len(tiers) > 1:
                found.append(f"I2: {told.id} is in {tiers}")
            if told.fate == "kept" and told.home is not None and tiers not in ([], [told.home]):
                found.append(f"{told.id} belongs in {told.home} and is in {tiers}")
        for batch in self.batches:
            tied = [i for i in batch if i not in self.stays]
            there = [i for i in tied if where[i]]
            if 0 < len(there) < len(tied):
                found.append(f"half of a batch is there: {there} of {batch}")
        return found

    def _values(self, whole: dict[str, dict[str, Fields]]) -> list[str]:
        found: list[str] = []
        for tier, records in whole.items():
            for record_id, record in records.items():
                told = self.told[record_id]
                if record["content"] not in told.contents:
                    found.append(f"I4: {record_id} in {tier} says {record['content']!r}")
                if record.get("revision", 0) not in told.revisions:
                    found.append(f"I7: {record_id} in {tier} has revision {record['revision']}")
                if "arrival" in record:
                    found.append(f"{record_id} in {tier} is still marked as arriving")
                old = told.whole
                if old is not None and record["content"] == old["content"]:
                    changed = {
                        name
                        for name in (old.keys() | record.keys()) - _BY_A_MOVE
                        if repr(old.get(name)) != repr(record.get(name))
                    }
                    if changed:
                        found.append(f"I6: {record_id} in {tier} changed its {sorted(changed)}")
                    if record.get("moves", 0) < old.get("moves", 0):
                        found.append(f"I6: {record_id} in {tier} moved backwards")
        return found

    def _shown(self, where: dict[str, list[str]]) -> list[str]:
        """What the router's timeline and recall show, against what the tiers hold."""
        there = {i for i, tiers in where.items() if tiers}
        reads = {
            "timeline": self.call("timeline", where={"session": self.session}),
            "recall": self.call("recall", query=self.mark, limit=100, touch=False),
        }
        found: list[str] = []
        for name, answer in reads.items():
            if "degraded" in answer:
                found.append(f"I10: {name} says that it lacks {answer['degraded']}")
            counts = Counter(record["id"] for record in answer["records"])
            if missing := there - counts.keys():
                found.append(f"I1: {name} does not show {sorted(missing)}")
            if more := counts.keys() - there:
                found.append(f"I3: {name} shows {sorted(more)}")
            if doubled := [i for i, count in counts.items() if count > 1]:
                found.append(f"I2: {name} shows twice {doubled}")
        # A rewritten fact has no fixed place, nor what stayed of a failed batch when the rest came later.
        ordered = [i for i, told in self.told.items() if told.revisions == {0} and i not in self.stays]
        shown = [r["id"] for r in reads["timeline"]["records"] if r["id"] in set(ordered)]
        ordered = [i for i in ordered if i in set(shown)]
        if shown != ordered:
            found.append(f"I9: the timeline shows {shown}, written as {ordered}")
        return found

    def _keys(self, where: dict[str, list[str]]) -> list[str]:
        found: list[str] = []
        for told in self.told.values():
            key = told.sent.get("key")
            if key is None or not where[told.id]:
                continue
            record = self.call("fetch", key=key)["record"]
            if record is None or record["id"] != told.id or record["content"] not in told.contents:
                found.append(f"I4: fetching {key} gives {record}, and should {told.contents}")
        return found

    def _groups(self, whole: dict[str, dict[str, Fields]]) -> list[str]:
        tiers: dict[str, set[str]] = defaultdict(set)
        for tier, records in whole.items():
            for record in records.values():
                if "group" in record:
                    tiers[record["group"]].add(tier)
        return [f"I5: {group} is in {sorted(at)}" for group, at in tiers.items() if len(at) > 1]

    def _foreign(self) -> list[str]:
        """What another owner sees of this client: nothing."""
        router, other = self.federation.router, f"bob-{self.mark}"
        timeline = router.call("timeline", owner=other)["records"]
        recall = router.call("recall", owner=other, query=self.mark, touch=False)["records"]
        counts = [tier["count"] for tier in router.call("describe", owner=other)["tiers"]]
        if timeline or recall or any(counts):
            return [f"I8: another owner is shown {timeline or recall or counts}"]
        return []
