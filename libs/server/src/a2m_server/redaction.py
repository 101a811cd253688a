"""Credentials are taken out of what is written before it is, where a server is told to.

What finds them is CredSweeper, by its rules alone: its models are not asked.
"""

from __future__ import annotations

import asyncio
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from a2m_protocol.errors import invalid_params, quota_exceeded
from a2m_protocol.types import MAX_CONTENT, MAX_METADATA, MAX_URI, Draft, metadata_text

Redaction = Literal["off", "credentials"]

MARKED = re.compile(r"\[redacted: [^\]\n]{1,80}\]")
"""What stands where a credential was; in it nothing is looked for again."""


_OWN = re.compile(r"a2m_[0-9a-z]{8}_[A-Za-z0-9_-]{43}")
"""A principal's token, which only we know."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where in a text a credential is, and what it is."""

    start: int
    end: int
    kind: str


class Detector(Protocol):
    def find(self, text: str) -> list[Span]:
        """The credentials in a text, in any order; they may overlap. The same text has the same."""
        ...


class Redactor:
    """Puts `[redacted: KIND]` in the place of credentials, so that the same text becomes the same."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._turn = asyncio.Lock()

    async def redacted(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Drafts without credentials in their content, `uri` and metadata; names of any kind are left.

        In a thread, one call at a time. Raises -32006 and -32602 for what is too long for a record then.
        """
        async with self._turn:
            return await asyncio.to_thread(lambda: [self._draft(draft) for draft in drafts])

    def text(self, text: str, key: str = "") -> str:
        """A text without credentials; `key` is what it is called, which may tell that it is one."""
        before = f"{key}: " if key else ""
        spans = [
            Span(max(0, s.start - len(before)), s.end - len(before), s.kind)
            for s in self._detector.find(before + text)
            if s.end > len(before)
        ]
        marked = [match.span() for match in MARKED.finditer(text)]
        clear = [s for s in spans if not any(s.start < end and start < s.end for start, end in marked)]
        parts: list[str] = []
        at = 0
        for span in _joined(text, clear):
            parts += [text[at : span.start], f"[redacted: {span.kind}]"]
            at = span.end
        return "".join([*parts, text[at:]])

    def _draft(self, draft: Draft) -> Draft:
        content = self.text(draft.content)
        uri = None if draft.uri is None else self.text(draft.uri)
        metadata = None if draft.metadata is None else self._object(draft.metadata)
        if len(content) > MAX_CONTENT:
            raise quota_exceeded(f"content: longer than {MAX_CONTENT} characters without its credentials")
        if uri is not None and len(uri) > MAX_URI:
            raise invalid_params(f"uri: longer than {MAX_URI} characters without its credentials")
        if metadata is not None and len(metadata_text(metadata)) > MAX_METADATA:
            raise invalid_params(f"metadata: longer than {MAX_METADATA} characters without its credentials")
        return draft.model_copy(update={"content": content, "uri": uri, "metadata": metadata})

    def _object(self, value: Mapping[str, object]) -> dict[str, object]:
        return {key: self._value(held, key) for key, held in value.items()}

    def _value(self, value: object, key: str) -> object:
        if isinstance(value, str):
            return self.text(value, key)
        if isinstance(value, list):
            return [self._value(one, key) for one in cast("list[object]", value)]
        if isinstance(value, dict):
            return self._object(cast("dict[str, object]", value))
        return value


class CredSweeperDetector:
    """What CredSweeper finds, whose libraries take seconds to load, and our own tokens."""

    def __init__(self) -> None:
        """Raises `ValueError` where CredSweeper is not installed."""
        # It logs the lines in which it finds something.
        logging.getLogger("credsweeper").setLevel(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                # Its classes say that they will be elsewhere in a later version than the one we ask for.
                warnings.simplefilter("ignore", DeprecationWarning)
                from credsweeper.app import CredSweeper
                from credsweeper.file_handler.string_content_provider import StringContentProvider  # pyright: ignore[reportDeprecated] as said
        except ImportError as error:
            raise ValueError(
                "to redact credentials takes CredSweeper: install a2m-server[redact], or set REDACT to off"
            ) from error
        self._sweeper = CredSweeper(ml_threshold=0)
        self._provider = StringContentProvider  # pyright: ignore[reportDeprecated] as said

    def find(self, text: str) -> list[Span]:
        lines = text.split("\n")
        starts = [*_starts(lines)]
        own = [Span(*match.span(), "A2M Token") for match in _OWN.finditer(text)]
        return own + [
            Span(starts[at.line_pos] + at.value_start, starts[at.line_pos] + at.value_end, found.rule_name)
            for found in self._sweeper.file_scan(self._provider(lines))
            for at in found.line_data_list
            if 0 <= at.value_start < at.value_end
        ]


def redactor_of(redaction: Redaction) -> Redactor | None:
    """What a server's setting asks for; raises `ValueError` where it is not installed."""
    return None if redaction == "off" else Redactor(CredSweeperDetector())


def _starts(lines: Iterable[str]) -> Iterator[int]:
    at = 0
    for line in lines:
        yield at
        at += len(line) + 1


def _joined(text: str, spans: Sequence[Span]) -> list[Span]:
    """Spans in order and apart: one of those that overlap or go on in the next line, named by the longest."""
    joined: list[Span] = []
    longest = 0
    for span in sorted(spans, key=lambda s: (s.start, -s.end, -len(s.kind), s.kind)):
        last = joined[-1] if joined else None
        goes_on = last is not None and span.kind == last.kind and not text[last.end : span.start].strip()
        if last is None or (span.start >= last.end and not goes_on):
            joined.append(span)
            longest = span.end - span.start
            continue
        kind, size = last.kind, span.end - span.start
        if size > longest:
            kind, longest = span.kind, size
        joined[-1] = Span(last.start, max(last.end, span.end), kind)
    return joined
