"""One client in a long conversation, which tries every call until it is answered and then knows what is so.

Since it alone writes in its sessions and repeats what failed, it knows at any time what every read must show,
also while processes die: all of it, or with a tier named as missing, a part of it in the same order.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from caller import Caller

from a2m_protocol.errors import A2MError

WORDS = ("plum", "pear", "quince", "medlar")
LONGEST = 80
"""Records after which a session is closed, and the next one begins."""
PATIENCE_SECONDS = 90.0
_PAUSE_SECONDS = 0.2


@dataclass
class Session:
    """What a session must hold: contents by id, in the order of writing; `facts` are ids by key."""

    name: str
    kept: dict[str, str] = field(default_factory=dict[str, str])
    facts: dict[str, str] = field(default_factory=dict[str, str])
    gone: set[str] = field(default_factory=set[str])

    def forget(self, ids: list[str]) -> None:
        for record_id in ids:
            del self.kept[record_id]
        self.gone.update(ids)
        self.facts = {key: i for key, i in self.facts.items() if i not in self.gone}


class Talker:
    """Talks through one router as one owner; `problems` is what it was shown that is wrong."""

    def __init__(self, name: str, owner: str, router: Caller, seed: int) -> None:
        self.owner = owner
        self.problems: list[str] = []
        self.calls: Counter[str] = Counter()
        self.failures = 0
        self.sessions: list[Session] = []
        self._name = name
        self._router = router
        self._random = random.Random(seed)
        self._numbers = 0

    def talk(self, over: threading.Event, pause: float) -> None:
        """Make calls of every kind, with pauses of about `pause` seconds, until it is `over`."""
        does: list[tuple[Callable[[], None], int]] = [
            (self._say, 40),
            (self._look_back, 20),
            (self._recall, 8),
            (self._rewrite, 12),
            (self._fetch, 8),
            (self._forget_one, 6),
            (self._forget_word, 3),
            (self._close, 3),
        ]
        works, weights = zip(*does, strict=True)
        self._begin()
        while not over.wait(self._random.uniform(0.5, 1.5) * pause):
            if self.problems:
                return
            if len(self.session.kept) > LONGEST:
                self._end()
            self._random.choices(works, weights)[0]()

    @property
    def session(self) -> Session:
        """The one that goes on."""
        return self.sessions[-1]

    def check(self) -> None:
        """Look at every session of its life once more."""
        for session in self.sessions:
            self._check_timeline(session)

    def _begin(self) -> None:
        self.sessions.append(Session(f"{self._name}/{len(self.sessions)}"))

    def _end(self) -> None:
        self._close()
        if self._random.random() < 0.5:
            self._try("forget", where={"session": self.session.name})
            self.session.forget([*self.session.kept])
            self._check_timeline(self.session)
        self._begin()

    def _say(self) -> None:
        group = self._new("call") if self._random.random() < 0.3 else None
        records = [self._record(role) for role in ("user", "assistant")]
        if group is not None:
            records = [{**record, "group": group} for record in records]
        self._try("remember", records=records, session=self.session.name)
        self.session.kept |= {record["id"]: record["content"] for record in records}

    def _rewrite(self) -> None:
        session = self.session
        key = f"{session.name}/fact/{self._random.randrange(3)}"
        record = self._record("memory") | {"key": key}
        if self._random.random() < 0.4:
            record["tier"] = "semantic"
        self._try("remember", records=[record], session=session.name)
        held = session.facts.setdefault(key, record["id"])
        session.kept[held] = record["content"]

    def _fetch(self) -> None:
        session = self.session
        for key, record_id in session.facts.items():
            answer = self._try("fetch", key=key)
            record = answer["record"]
            if "degraded" in answer and record is None:
                continue
            if record is None or (record["id"], record["content"]) != (record_id, session.kept[record_id]):
                # Of a key that lives in a tier which does not answer, no older value is left anywhere.
                self._wrong(f"fetching {key} gives {record}, not {session.kept[record_id]!r}")

    def _look_back(self) -> None:
        self._check_timeline(self.session)

    def _recall(self) -> None:
        session = self.session
        answer = self._try("recall", query=session.name, limit=0, where={"session": session.name})
        shown = Counter(record["id"] for record in answer["records"])
        if doubled := [i for i, count in shown.items() if count > 1]:
            self._wrong(f"recall shows twice {doubled}")
        if more := shown.keys() - session.kept.keys():
            self._wrong(f"recall shows {sorted(more)} {sorted(more & session.gone)}")
        if "degraded" not in answer and (missing := session.kept.keys() - shown.keys()):
            self._wrong(f"recall does not show {sorted(missing)}")

    def _forget_one(self) -> None:
        if self.session.kept:
            doomed = self._random.choice([*self.session.kept])
            self._try("forget", ids=[doomed])
            self.session.forget([doomed])

    def _forget_word(self) -> None:
        word = self._random.choice(WORDS)
        session = self.session
        self._try("forget", query=word, where={"session": session.name})
        session.forget([i for i, content in session.kept.items() if word in content.split()])

    def _close(self) -> None:
        self._try("session/close", session=self.session.name)

    def _check_timeline(self, session: Session) -> None:
        answer = self._try("timeline", where={"session": session.name})
        facts = {*session.facts.values()}
        shown = [(r["id"], r["content"]) for r in answer["records"]]
        expected = [(i, content) for i, content in session.kept.items()]
        if "degraded" in answer:
            expected = [pair for pair in expected if pair in set(shown)]
        # A fact keeps its place when it is rewritten, and what follows it was written after it.
        if [p for p in shown if p[0] not in facts] != [p for p in expected if p[0] not in facts]:
            self._wrong(f"the timeline of {session.name} shows {_difference(shown, expected)}")
        elif sorted(shown) != sorted(expected):
            self._wrong(f"the facts of {session.name} are shown as {_difference(shown, expected)}")

    def _try(self, method: str, **params: Any) -> dict[str, Any]:
        """Call until it is answered, as a client with patience does."""
        self.calls[method] += 1
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._router.call(method, owner=self.owner, **params)
            except A2MError as error:
                self.failures += 1
                if not error.retryable or time.monotonic() > deadline:
                    self._wrong(f"{method} fails: {error.message}")
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _record(self, role: str) -> dict[str, Any]:
        name = self._new(role)
        content = f"{self.session.name} {name} {self._random.choice(WORDS)}"
        return {"id": name, "content": content, "role": role, "metadata": {"n": self._numbers}}

    def _new(self, kind: str) -> str:
        self._numbers += 1
        return f"{self._name}/{kind}/{self._numbers}"

    def _wrong(self, problem: str) -> None:
        self.problems.append(f"{self._name}: {problem}")


def _difference(shown: list[tuple[str, str]], expected: list[tuple[str, str]]) -> str:
    more, missing = set(shown) - set(expected), set(expected) - set(shown)
    if more or missing:
        return f"{sorted(more)} more, {sorted(missing)} missing"
    return f"another order: {[i for i, _ in shown]}"
