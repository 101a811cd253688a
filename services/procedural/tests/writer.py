"""A process that writes to a repository: `python writer.py PATH NAME THREADS COUNT`, or `kill PATH STEP CALL`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.types import Draft
from a2m_server.store import EVERYONE, Filter, Named


async def write(path: str, name: str, tasks: int, count: int) -> None:
    stores = [ProceduralStore(Place(Path(path))) for _ in range(2)]
    for store in stores:
        await store.open()

    async def one(task: int) -> None:
        for number in range(count):
            draft = Draft(
                id=f"{name}-{task}-{number}", content=f"{task} {number}", key=f"k/{name}/{task}/{number}"
            )
            await stores[task % 2].write([draft], EVERYONE)
            print(draft.id, flush=True)

    await asyncio.gather(*(one(task) for task in range(tasks)))
    for store in stores:
        await store.close()


async def die(path: str, step: str, call: str) -> None:
    """End by SIGKILL when a write reaches `step`."""

    def observe(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    store = ProceduralStore(Place(Path(path)), observe=observe)
    await store.open()
    if call == "create":
        await store.write([Draft(id="new", content="new", embedding=[0.0, 1.0], salience=7.0)], EVERYONE)
    elif call == "rewrite":
        await store.write([Draft(id="r", content="newer", key="k", embedding=[0.0, 1.0])], EVERYONE)
    elif call == "forget":
        await store.forget(Filter(ids=("old",)))
    elif call == "move":
        [record] = await store.read(["old"])
        await store.delete_if([Named("old", record.etag)], "moved", "semantic")
    await store.close()


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        asyncio.run(die(*sys.argv[2:5]))
    else:
        asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
