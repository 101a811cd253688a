"""The methods of A2M as Python methods, whatever it is that calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar, cast

from a2m_protocol.errors import Json, JsonObject

R = TypeVar("R")


class Unset(Enum):
    """Tells a parameter that was not given from one given as None."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET

Owner = str | None | Unset
Names = Sequence[str] | None
Where = Mapping[str, Json] | None


class Methods(ABC, Generic[R]):
    """One method for each of the protocol's; `R` is the result object, or what one awaits for it.

    What is None is left out of the parameters, but `owner=None`, which is sent as null. Further
    parameters, our extensions say, are given by name. `timeout` is in seconds.
    """

    @abstractmethod
    def call(self, method: str, params: JsonObject | None = None, *, timeout: float | None = None) -> R:
        """The result of a method; raises `A2MError`, and its subclass `TransportError` if there was none."""

    def describe(
        self,
        *,
        protocol: str | None = None,
        owner: Owner = UNSET,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send("describe", owner, timeout, more, protocol=protocol)

    def remember(
        self,
        records: Sequence[Mapping[str, Json]],
        *,
        owner: Owner = UNSET,
        session: str | None = None,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send("remember", owner, timeout, more, records=records, session=session)

    def recall(
        self,
        query: str | None = None,
        *,
        tier: str | None = None,
        limit: int | None = None,
        where: Where = None,
        min_score: float | None = None,
        owner: Owner = UNSET,
        embedding: Sequence[float] | None = None,
        key_prefix: str | None = None,
        embeddings: bool | None = None,
        prompt: bool | Mapping[str, Json] | None = None,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send(
            "recall",
            owner,
            timeout,
            more,
            query=query,
            tier=tier,
            limit=limit,
            where=where,
            min_score=min_score,
            embedding=embedding,
            key_prefix=key_prefix,
            embeddings=embeddings,
            prompt=prompt,
        )

    def timeline(
        self,
        *,
        tier: str | None = None,
        limit: int | None = None,
        where: Where = None,
        owner: Owner = UNSET,
        key_prefix: str | None = None,
        embeddings: bool | None = None,
        prompt: bool | Mapping[str, Json] | None = None,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send(
            "timeline",
            owner,
            timeout,
            more,
            tier=tier,
            limit=limit,
            where=where,
            key_prefix=key_prefix,
            embeddings=embeddings,
            prompt=prompt,
        )

    def forget(
        self,
        *,
        ids: Names = None,
        query: str | None = None,
        tier: str | None = None,
        where: Where = None,
        owner: Owner = UNSET,
        key_prefix: str | None = None,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send(
            "forget",
            owner,
            timeout,
            more,
            ids=ids,
            query=query,
            tier=tier,
            where=where,
            key_prefix=key_prefix,
        )

    def promote(
        self,
        ids: Sequence[str],
        tier: str,
        *,
        salience: float | None = None,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send("promote", UNSET, timeout, more, ids=ids, tier=tier, salience=salience)

    def consolidate(self, *, timeout: float | None = None, **more: Json) -> R:
        return self._send("consolidate", UNSET, timeout, more)

    def reinforce(
        self, ids: Sequence[str], *, amount: float | None = None, timeout: float | None = None, **more: Json
    ) -> R:
        return self._send("reinforce", UNSET, timeout, more, ids=ids, amount=amount)

    def fetch(
        self,
        key: str,
        *,
        owner: Owner = UNSET,
        embeddings: bool | None = None,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send("fetch", owner, timeout, more, key=key, embeddings=embeddings)

    def sessions(self, *, owner: Owner = UNSET, timeout: float | None = None, **more: Json) -> R:
        return self._send("session/list", owner, timeout, more)

    def close_session(
        self, session: str, *, owner: Owner = UNSET, timeout: float | None = None, **more: Json
    ) -> R:
        return self._send("session/close", owner, timeout, more, session=session)

    def events(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        kinds: Names = None,
        owner: Owner = UNSET,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send("events", owner, timeout, more, cursor=cursor, limit=limit, kinds=kinds)

    def subscribe(
        self, *, kinds: Names = None, owner: Owner = UNSET, timeout: float | None = None, **more: Json
    ) -> R:
        return self._send("events/subscribe", owner, timeout, more, kinds=kinds)

    def unsubscribe(self, *, timeout: float | None = None, **more: Json) -> R:
        return self._send("events/unsubscribe", UNSET, timeout, more)

    def summarize(
        self,
        *,
        ids: Names = None,
        query: str | None = None,
        tier: str | None = None,
        where: Where = None,
        key_prefix: str | None = None,
        limit: int | None = None,
        owner: Owner = UNSET,
        into: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        **more: Json,
    ) -> R:
        return self._send(
            "summarize",
            owner,
            timeout,
            more,
            ids=ids,
            query=query,
            tier=tier,
            where=where,
            key_prefix=key_prefix,
            limit=limit,
            into=into,
            key=key,
        )

    def _send(
        self,
        method: str,
        owner: Owner,
        timeout: float | None,
        more: Mapping[str, Json],
        **given: object,
    ) -> R:
        params = {name: value for name, value in given.items() if value is not None}
        if owner is not UNSET:
            params["owner"] = owner
        return self.call(f"memory/{method}", cast("JsonObject", {**params, **more}), timeout=timeout)
