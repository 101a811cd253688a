"""Whatever JSON comes in, a proper response comes out."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from a2m_protocol.jsonrpc import decode, encode
from a2m_server.dispatch import Dispatcher
from a2m_server.identity import LOCAL, LOOPBACK, Peer
from a2m_server.memory import MemoryTier
from a2m_server.methods import EXTENSIONS, METHODS

NAMES = ["memory/describe", *METHODS, *EXTENSIONS]
PARAMETERS = [
    *(
        "records",
        "owner",
        "session",
        "query",
        "tier",
        "limit",
        "where",
        "min_score",
        "embedding",
        "key_prefix",
    ),
    *(
        "embeddings",
        "prompt",
        "ids",
        "salience",
        "amount",
        "key",
        "cursor",
        "kinds",
        "into",
        "transfer",
        "touch",
    ),
    *("reason", "target", "tombstones", "after", "at", "protocol", "embedding_model"),
]
FIELDS = [
    *(
        "id",
        "content",
        "created_at",
        "role",
        "metadata",
        "group",
        "tier",
        "salience",
        "owner",
        "session",
        "key",
    ),
    *(
        "embedding",
        "uri",
        "media_type",
        "seq",
        "moves",
        "aliases",
        "features",
        "provenance",
        "status",
        "etag",
    ),
]
ODD = st.sampled_from(
    ["", " ", "/", "\x00", "\ud800", "memory", "a/b", 0, -1, 2**70, 1e308, True, None, [], {}]
)
JSON: st.SearchStrategy[Any] = st.recursive(
    ODD | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)
CALLS = st.tuples(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(PARAMETERS), JSON, max_size=5))


@settings(max_examples=300, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=6), st.sampled_from([LOCAL, LOOPBACK]))
def test_any_call_is_answered_with_a_result_or_an_error_of_the_protocol(calls: Any, caller: Any) -> None:
    async def run() -> None:
        dispatcher = Dispatcher(MemoryTier())
        peer = Peer(caller, push=True)
        for method, params in calls:
            message = decode(encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
            response = await dispatcher.handle(message, peer)
            assert response is not None
            decode(encode(response))
            if "error" in response:
                error: Any = response["error"]
                assert error["code"] in (-32602, -32002, -32003, -32005, -32006, -32007, -32008)
        await dispatcher.close()

    asyncio.run(run())
