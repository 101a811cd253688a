"""Processes that write to a repository, and some that are killed doing it.

`python writer.py write PATH NAME TASKS COUNT` prints each id once it is acknowledged. `python writer.py kill
FOLDER` makes a repository for each step and call in FOLDER, and a process that ends by SIGKILL at that step.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from a2m_procedural.store import Place, ProceduralStore
from a2m_protocol.types import Draft
from a2m_server.values import EVERYONE, Filter, Named

STEPS = ("made", "intended", "advanced", "followed", "applied")
CALLS = ("create", "rewrite", "forget", "move")


async def write(path: Path, name: str, tasks: int, count: int) -> None:
    stores = [ProceduralStore(Place(path)) for _ in range(2)]
    for store in stores:
        await store.open()

    async def one(task: int) -> None:
        for number in range(count):
            key = f"k/{name}/{task}/{number}"
            draft = Draft(id=f"{name}-{task}-{number}", content=f"{task} {number}", key=key)
            await stores[task % 2].write([draft], EVERYONE)
            print(draft.id, flush=True)

    await asyncio.gather(*(one(task) for task in range(tasks)))
    for store in stores:
        await store.close()


async def die(path: Path, step: str, call: str) -> None:
    armed = False

    def observe(reached: str) -> None:
        if armed and reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    store = ProceduralStore(Place(path), observe=observe)
    await store.open()
    await store.write([Draft(id="old", content="old", key="k", embedding=[1.0, 0.0])], EVERYONE)
    armed = True
    if call == "create":
        await store.write([Draft(id="new", content="new", embedding=[0.0, 1.0], salience=7.0)], EVERYONE)
    elif call == "rewrite":
        await store.write([Draft(id="r", content="newer", key="k", embedding=[0.0, 1.0])], EVERYONE)
    elif call == "forget":
        await store.forget(Filter(ids=("old",)))
    else:
        [record] = await store.read(["old"])
        await store.delete_if([Named("old", record.etag)], "moved", "semantic")


def kill_all(folder: Path) -> None:
    """A fork a scenario, since a start of Python costs more than the scenario."""
    for step in STEPS:
        for call in CALLS:
            child = os.fork()
            if child == 0:
                asyncio.run(die(folder / f"{step}-{call}", step, call))
                os._exit(1)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", path, name, tasks, count]:
            asyncio.run(write(Path(path), name, int(tasks), int(count)))
        case ["kill", folder]:
            kill_all(Path(folder))
        case _:
            sys.exit(__doc__)
