"""A router that stops where a test says: run as a script, with the settings of any router.

Beside the router's own routes it serves `POST /pauses` ({"step", "nth"}: stop at the n-th time the step is
reached from now on; answers {"pause"}), `GET /pauses/N` (answers when it is reached, or after 10 s) and
`DELETE /pauses/N` (go on).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse

from a2m_router.app import create
from a2m_router.settings import RouterSettings
from a2m_router.steps import Step
from a2m_server import http

LONGEST_ANSWER = 10.0


@dataclass
class Pause:
    """A place to stop at once; `left` counts the times that the step passes before that."""

    step: str
    left: int
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Gate:
    """The observer given to the router, and the routes by which a test governs it."""

    def __init__(self) -> None:
        self._pauses: list[Pause] = []

    async def __call__(self, step: Step) -> None:
        for pause in self._pauses:
            if pause.step == step and not pause.reached.is_set() and not pause.over.is_set():
                pause.left -= 1
                if pause.left == 0:
                    pause.reached.set()
                    await pause.over.wait()
                    return

    async def add(self, request: Request) -> JSONResponse:
        asked = await request.json()
        self._pauses.append(Pause(asked["step"], asked["nth"]))
        return JSONResponse({"pause": len(self._pauses) - 1})

    async def wait(self, request: Request) -> JSONResponse:
        pause = self._named(request)
        try:
            await asyncio.wait_for(pause.reached.wait(), LONGEST_ANSWER)
        except TimeoutError:
            return JSONResponse({"reached": False})
        return JSONResponse({"reached": True})

    async def end(self, request: Request) -> JSONResponse:
        self._named(request).over.set()
        return JSONResponse({})

    def _named(self, request: Request) -> Pause:
        return self._pauses[int(request.path_params["number"])]


def main() -> None:
    settings = RouterSettings()
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for chatty in ("uvicorn", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    gate = Gate()
    app = create(settings, observer=gate)
    app.add_route("/pauses", gate.add, methods=["POST"])
    app.add_route("/pauses/{number:int}", gate.wait, methods=["GET"])
    app.add_route("/pauses/{number:int}", gate.end, methods=["DELETE"])
    http.serve(app, settings)


if __name__ == "__main__":
    main()
