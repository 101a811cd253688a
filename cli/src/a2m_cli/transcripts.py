"""Chat transcripts and turn lines as records: pure functions of parsed lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from a2m_protocol.clock import SEQ_PER_MS, format_ms, parse_ms
from a2m_protocol.errors import Json, JsonObject

EPOCH_MS = 946_684_800_000
"""2000-01-01: where conversations that have no times of their own begin."""

_HOUR_MS = 3_600_000
_SECOND_MS = 1_000

RECORD_FIELDS = frozenset(
    {
        "id",
        "content",
        "created_at",
        "role",
        "session",
        "group",
        "key",
        "owner",
        "uri",
        "media_type",
        "salience",
    }
)
_TIMES = ("created_at", "timestamp")
_NAMES = ("conversation", "conversation_id", "session", "id")


class LineError(ValueError):
    """A line cannot be a record; the message says what is wrong with it."""


@dataclass(slots=True)
class Stamps:
    """Gives each record of a file its `created_at` and `seq`, the same in every run.

    Sessions keep the order of the file. What has no time follows its predecessor by a second; a session
    without any begins at `start` (ms) plus an hour for each session before it, and what has its time from
    there alone counts as `undated`. The time of an import would be another in the next one: what was
    forgotten in between would be younger than its tombstone, and come back.
    """

    start: int = EPOCH_MS
    undated: int = 0
    _without: set[str] = field(default_factory=set[str])
    _last: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def next(self, session: str, given: int | None) -> JsonObject:
        """The two fields of the session's next record; `given` is its own time in ms."""
        last = self._last.get(session)
        if given is not None:
            self._without.discard(session)
        elif last is None:
            self._without.add(session)
        self.undated += session in self._without
        if last is None:
            ms = self.start + len(self._last) * _HOUR_MS if given is None else given
            seq = ms * SEQ_PER_MS
        else:
            ms = last[0] + _SECOND_MS if given is None else given
            seq = max(ms * SEQ_PER_MS, last[1] + 1)
        self._last[session] = (ms, seq)
        try:
            return {"created_at": format_ms(ms), "seq": seq}
        except (ValueError, OverflowError, OSError):
            raise LineError("created_at: out of range") from None

    def place(self, session: str) -> int:
        """The `seq` of the session's last record, the same whatever the `start`."""
        moved = (self.start - EPOCH_MS) * SEQ_PER_MS if session in self._without else 0
        return self._last[session][1] - moved


def chat_records(line: Mapping[str, Json], name: str, stamps: Stamps) -> Iterator[JsonObject]:
    """The messages of one conversation in the chat format of OpenAI.

    A message's `tool_calls` and whatever else it has are kept in its metadata. An assistant message with
    calls and the tool messages that answer them share a `group`. `name` is for a conversation without one.
    Raises `LineError`.
    """
    session = _name(line) or name
    messages = line.get("messages")
    if not isinstance(messages, list) or not messages:
        raise LineError("messages: expected an array of at least one message")
    about = {key: value for key, value in line.items() if key not in ("messages", *_NAMES)}
    open_calls: dict[Json, str] = {}
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise LineError(f"messages[{index}]: expected an object")
        try:
            record = _chat_record(message, session, index, stamps)
        except LineError as error:
            raise LineError(f"messages[{index}].{error}") from None
        group = _group(message, f"{session}/{index:04d}", open_calls)
        if group is not None:
            record["group"] = group
        if index == 0 and about:
            record["metadata"] = {**_object(record.get("metadata")), "transcript": about}
        yield record


def turn_record(line: Mapping[str, Json], name: str, stamps: Stamps) -> JsonObject:
    """One turn on a line of its own: record fields at the top, and anything else goes to its metadata.

    Without a `session` the `conversation`, else `name`, is one. Raises `LineError`.
    """
    session = _text(line, "session") or _text(line, "conversation") or name
    record = {key: line[key] for key in RECORD_FIELDS if line.get(key) is not None}
    record["content"], parts = _content(line)
    record["session"] = session
    given = _time(line)
    record |= stamps.next(session, given)
    if "id" not in record:
        record["id"] = f"{session}/{_digest({**line, 'seq': stamps.place(session)})}"
    used = {*RECORD_FIELDS, "metadata"} | ({"timestamp"} if given is not None else set[str]())
    extra = {key: value for key, value in line.items() if key not in used}
    own = line.get("metadata")
    if own is not None and not isinstance(own, dict):
        raise LineError("metadata: expected an object")
    metadata: JsonObject = {**extra, **parts, **(own or {})}
    if metadata:
        record["metadata"] = metadata
    return record


def _chat_record(message: JsonObject, session: str, index: int, stamps: Stamps) -> JsonObject:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise LineError("role: expected a string that is not empty")
    content, parts = _content(message)
    given = _time(message)
    used = {"role", "content", *(_TIMES if given is not None else ())}
    metadata: JsonObject = {key: value for key, value in message.items() if key not in used} | parts
    record: JsonObject = {
        # With the content in the id, another conversation of the same name is not mistaken for this one.
        "id": f"{session}/{index:04d}-{_digest(message)}",
        "content": content,
        "role": role,
        "session": session,
        **stamps.next(session, given),
    }
    if metadata:
        record["metadata"] = metadata
    return record


def _group(message: Mapping[str, Json], own: str, open_calls: dict[Json, str]) -> str | None:
    """The group of a message; `open_calls` are the calls so far that have no answer yet, by id."""
    if message.get("role") == "assistant":
        calls = [call.get("id") for call in _objects(message.get("tool_calls"))]
        if isinstance(legacy := message.get("function_call"), dict):
            calls.append(legacy.get("name"))
        # An id may come again later in the conversation: then it names the later call.
        open_calls.update(dict.fromkeys((call for call in calls if isinstance(call, str)), own))
        return own if calls else None
    call = message.get("tool_call_id") or (message.get("name") if message.get("role") == "function" else None)
    return open_calls.pop(call, None) if isinstance(call, str) else None


def _content(message: Mapping[str, Json]) -> tuple[str, JsonObject]:
    """The text of a message, null being "", and its parts for the metadata when they are more than text."""
    content = message.get("content")
    if content is None:
        return "", {}
    if isinstance(content, str):
        return content, {}
    if isinstance(content, list):
        texts = [part if isinstance(part, str) else _object(part).get("text") for part in content]
        return "\n".join(text for text in texts if isinstance(text, str)), {"content_parts": content}
    raise LineError("content: expected a string, null or an array of parts")


def _time(fields: Mapping[str, Json]) -> int | None:
    """The time of a message in ms, of the zone that it names."""
    for name in _TIMES:
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            if name == "created_at":
                raise LineError(f"{name}: expected a timestamp such as 2026-07-28T10:15:30.123Z")
            continue
        try:
            return parse_ms(value)
        except ValueError:
            return _zoned(name, value)
    return None


def _zoned(name: str, value: str) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise LineError(
            f"{name}: {value[:40]!r} is not a timestamp with a zone, such as 2026-07-28T10:15:30Z"
        )
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _name(line: Mapping[str, Json]) -> str | None:
    return next((name for field_name in _NAMES if (name := _text(line, field_name))), None)


def _text(line: Mapping[str, Json], name: str) -> str | None:
    value = line.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise LineError(f"{name}: expected a string that is not empty")
    return value


def _digest(value: Mapping[str, Json]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
