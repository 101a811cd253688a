"""The command line that every server has."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import SettingsError

from a2m_protocol.errors import A2MError
from a2m_server import http, logs, stdio, tracing
from a2m_server.exchange import Handler
from a2m_server.metrics import Metrics
from a2m_server.service import dispatcher
from a2m_server.settings import ServerSettings
from a2m_server.store import MemoryStore

S = TypeVar("S", bound=ServerSettings)


def main(
    create_store: Callable[[S], MemoryStore],
    settings_cls: type[S],
    arguments: Sequence[str] | None = None,
    *,
    prog: str | None = None,
) -> None:
    """Serve a store over HTTP, or with `--stdio` on the standard streams, until asked to stop.

    Options override the environment. Raises `SystemExit` with a message when the settings are wrong, and when
    `create_store` raises `ValueError`.
    """
    run(lambda settings, _: dispatcher(create_store(settings), settings), settings_cls, arguments, prog=prog)


def run(
    create_handler: Callable[[S, Metrics], Handler],
    settings_cls: type[S],
    arguments: Sequence[str] | None = None,
    *,
    prog: str | None = None,
) -> None:
    """The same for who makes the dispatcher too, with an event log of its own say.

    What it counts is served with the rest where it is added to the registry of the metrics that it is given.
    """
    parser = argparse.ArgumentParser(prog=prog, description="An A2M memory server.")
    parser.add_argument("--stdio", action="store_true", help="serve one client on standard input and output")
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port to listen on, 0 for a free one")
    parser.add_argument("--token-file", help="a file that holds the bearer token of trusted callers")
    parser.add_argument("--principals-file", help="a file of principals, as `a2m token create` writes it")
    parser.add_argument("--log-level", help="debug, info, warning, error or critical")
    options = vars(parser.parse_args(arguments))
    over_stdio = options.pop("stdio")
    settings = _settings(settings_cls, {name: value for name, value in options.items() if value is not None})
    logs.configure(settings.service, settings.log_level, settings.log_format)
    try:
        tracing.start(settings.service)
        metrics = Metrics()
        handler = create_handler(settings, metrics)
        if over_stdio:
            stdio.serve(handler, settings)
        else:
            http.serve(http.serve_handler(handler, settings, metrics), settings)
    except (A2MError, ValueError) as error:
        raise SystemExit(f"cannot start: {error}") from error


def _settings(settings_cls: type[S], given: dict[str, str | int]) -> S:
    try:
        return settings_cls(**given)  # pyright: ignore[reportArgumentType] validated by pydantic
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc'])) or 'settings'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors(include_url=False, include_input=False)
        ]
        raise SystemExit("wrong settings: " + "; ".join(problems)) from error
    except SettingsError as error:
        raise SystemExit(f"wrong settings: {error}") from error
