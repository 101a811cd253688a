"""Processes that erase from a repository and are killed doing it, or that write to it meanwhile.

`python erasing.py die PATH STEP` erases `secret` and ends by SIGKILL at that step; without a step it prints
`ready`, waits for a line and erases. `python erasing.py write PATH COUNT` prints each acknowledged id.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_server.values import EVERYONE


async def die(path: Path, step: str) -> None:
    def observe(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    store = ProceduralStore(Place(path), observe=observe)
    await store.open()
    if not step:
        print("ready", flush=True)
        sys.stdin.readline()
    await store.erase(["secret"])
    await store.close()


async def write(path: Path, count: int) -> None:
    store = ProceduralStore(Place(path))
    await store.open()
    for number in range(count):
        draft = Draft(id=f"w{number}", content=f"written {number}")
        while True:
            try:
                await store.write([draft], EVERYONE)
            except A2MError as error:
                if not error.retryable:
                    raise
            else:
                break
        print(draft.id, flush=True)
    await store.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["die", path, *step]:
            asyncio.run(die(Path(path), "".join(step)))
        case ["write", path, count]:
            asyncio.run(write(Path(path), int(count)))
        case _:
            sys.exit(__doc__)
