"""`a2m events --follow`."""

from __future__ import annotations

from collections.abc import Sequence

from a2m_cli import rendering
from a2m_cli.connection import Server
from a2m_protocol import jsonrpc
from a2m_protocol.client import UNSET, Client


def follow(
    server: Server, *, cursor: str | None, kinds: Sequence[str] | None, owner: str | None, as_json: bool
) -> None:
    """Print events as they come, one JSON object a line with `as_json`, until Ctrl-C."""
    out = rendering.console()

    async def watch(client: Client) -> None:
        events = client.watch(cursor=cursor, kinds=kinds, owner=UNSET if owner is None else owner)
        async for event in events:
            if as_json:
                print(jsonrpc.encode(event).decode(), flush=True)
            else:
                rendering.show_events(out, [event])

    server.run(watch)
