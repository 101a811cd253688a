"""What callers of a federation do in scenes; each act says what it was told."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import oracle
from explorer import Violation
from scenes import ONE, SESSION, Scene

from a2m_protocol.errors import A2MError
from a2m_protocol.types import Draft
from a2m_router.federation import Federation
from a2m_router.moves import as_draft
from a2m_server.contract import where, within
from a2m_server.values import EVERYONE, Filter, Page, Search

AGAIN = Draft(id="two", content="second words", session=SESSION, key="k")
LATER = Draft(id="later", content="later words", session=SESSION, group="g")
ANEW = Draft(id="one", content="new words", session=SESSION, tier="episodic")
NEWEST = Draft(id="three", content="third words", session=SESSION, key="k")
FAR = Draft(id="far", content="far words", tier="episodic")
LATER_KEYED = LATER.model_copy(update={"key": "k"})
LATER_AGAIN = Draft(id="two", content="latest words", session=SESSION, key="k")
OLD = Draft(id="one", content="first words", session=SESSION, created_at="2020-01-01T00:00:00.000Z")


async def close(scene: Scene, router: Federation) -> None:
    await router.close_session(SESSION, EVERYONE)


async def sweep(scene: Scene, router: Federation) -> None:
    await router.consolidate()


async def promote(scene: Scene, router: Federation) -> None:
    """To the last tier of the scene."""
    await router.promote([*scene.begun], scene.plan.configs[-1].name, 0.0, EVERYONE)


async def promote_up(scene: Scene, router: Federation) -> None:
    """The same, with some salience on arrival."""
    at = {thing: len(scene.added.setdefault(thing, [])) for thing in scene.begun}
    for thing in at:
        scene.added[thing].append((2.0, None))
    moved = await router.promote([*at], scene.plan.configs[-1].name, 2.0, EVERYONE)
    for thing, place in at.items():
        # Where another mover ended it, this one is told that nothing moved.
        scene.added[thing][place] = (2.0, 1 if thing in moved else None)


async def forget_by_id(scene: Scene, router: Federation) -> None:
    with scene.doing("one", oracle.forgotten, forgets=True):
        await router.forget(Filter(ids=("one",)))


async def forget_by_words(scene: Scene, router: Federation) -> None:
    with scene.doing("one", oracle.forgotten_where("first"), forgets=True):
        await router.forget(Filter(words=("first",)))


async def forget_by_where(scene: Scene, router: Federation) -> None:
    """The whole session."""
    with ExitStack() as stack:
        for thing in [*scene.things]:
            stack.enter_context(scene.doing(thing, oracle.forgotten, forgets=True))
        await router.forget(Filter(where=where(session=SESSION)))


async def read(scene: Scene, router: Federation) -> None:
    with scene.reading(scene.things, ordered=True) as told:
        told.shown = (await router.timeline(Page(within(SESSION)))).records


async def read_everything(scene: Scene, router: Federation) -> None:
    with scene.reading(scene.things, ordered=True) as told:
        told.shown = (await router.timeline(Page(Filter()))).records


async def recall(scene: Scene, router: Federation) -> None:
    with scene.reading(scene.things) as told:
        told.shown = (await router.search(Search(Filter(), 5, text="words"))).records


async def fetch(scene: Scene, router: Federation) -> None:
    with scene.reading(("one",)) as told:
        record = (await router.fetch("k", EVERYONE, vectors=False)).record
        told.shown = [record] if record is not None else []


async def reinforce(scene: Scene, router: Federation) -> None:
    added = scene.added.setdefault("one", [])
    added.append((1.0, None))
    count = await router.reinforce(["one"], 1.0, EVERYONE)
    added[added.index((1.0, None))] = (1.0, count)
    if count != 1 and not any(deed.thing == "one" for deed in scene.deeds):
        raise Violation(f"I1: a reinforcement found {count} records")


async def touch(scene: Scene, router: Federation) -> None:
    touched = scene.touched.setdefault("one", [])
    at = len(touched)
    touched.append(False)
    await router.touch(["one"], "2026-01-01T00:00:00.000Z")
    touched[at] = True


async def retry(scene: Scene, router: Federation) -> None:
    """The write of what is there, once more; of what was forgotten, a new write of the client's own."""
    draft = scene.plan.first[0]
    with scene.doing("one", oracle.written(draft)):
        [written] = await router.write([draft], EVERYONE)
    if written.id != "one":
        raise Violation(f"I7: a retry was told {written}")
    if written.outcome != "existing" and len(scene.deeds) == 1:
        raise Violation(f"I7: a retry was told {written.outcome}")


async def rewrite(scene: Scene, router: Federation) -> None:
    with scene.doing("one", oracle.written(AGAIN)):
        await router.write([AGAIN], EVERYONE)


async def join(scene: Scene, router: Federation) -> None:
    """A late member of the group."""
    scene.expect(LATER, oracle.State())
    with scene.doing("later", oracle.written(LATER)):
        await router.write([LATER], EVERYONE)


async def rewrite_and_read(scene: Scene, router: Federation) -> None:
    await rewrite(scene, router)
    await fetch(scene, router)


async def retry_the_rewrite(scene: Scene, router: Federation) -> None:
    """A late retry of a rewrite, which a newer one may have followed."""
    with scene.doing("one", oracle.written(AGAIN)):
        [written] = await router.write([AGAIN], EVERYONE)
    if written.outcome != "existing":
        raise Violation(f"I7: a retry was told {written.outcome}")


async def forget_and_read(scene: Scene, router: Federation) -> None:
    await forget_by_id(scene, router)
    await read_everything(scene, router)


async def forget_and_write_anew(scene: Scene, router: Federation) -> None:
    """The client's own new record of an id that it forgot, in another tier."""
    await forget_by_id(scene, router)
    await write_anew(scene, router)


async def write_anew(scene: Scene, router: Federation) -> None:
    with scene.doing("one", oracle.written(ANEW)):
        await router.write([ANEW], EVERYONE)


async def forget_write_anew_and_retry(scene: Scene, router: Federation) -> None:
    """The retry of the new record goes to working."""
    await forget_and_write_anew(scene, router)
    await write_plainly(scene, router)


async def write_plainly(scene: Scene, router: Federation) -> None:
    with scene.doing("one", oracle.written(ONE)):
        await router.write([ONE], EVERYONE)


async def take_in(scene: Scene, router: Federation) -> None:
    """An import of what was taken out before."""
    with scene.doing("one", oracle.imported(OLD)):
        await router.transfer([OLD])


async def far_travelled(scene: Scene, router: Federation) -> None:
    """At first: a record in working that has moved often."""
    scene.expect(ONE, oracle.written(ONE)(oracle.State()))
    await router.transfer([ONE.model_copy(update={"moves": 5, "seq": scene.now})])


async def forget_write_anew_and_promote(scene: Scene, router: Federation) -> None:
    await forget_and_write_anew(scene, router)
    await promote(scene, router)


async def join_and_rewrite(scene: Scene, router: Federation) -> None:
    """A late member with a key, which is rewritten at once."""
    scene.expect(LATER_KEYED, oracle.State())
    for draft in (LATER_KEYED, LATER_AGAIN):
        with scene.doing("later", oracle.written(draft)):
            await router.write([draft], EVERYONE)


async def write_in_vain(scene: Scene, router: Federation) -> None:
    """A batch whose second record a tier refuses."""
    with suppress(A2MError), scene.doing("one", oracle.written(ONE)):
        await router.write([ONE, FAR], EVERYONE)


async def stray_copy(scene: Scene, router: Federation) -> None:
    """The copy of a record in working as it was at first, by a router that died long ago."""
    assert scene.old is not None
    await router._tiers.get("episodic").store.transfer([as_draft(scene.old, "working", 0.0)])


async def far_travelled_and_renewed(scene: Scene, router: Federation) -> None:
    """At first: a record that had moved often was forgotten, written anew elsewhere, and moved on."""
    await far_travelled(scene, router)
    [scene.old] = await router.read(["one"])
    await forget_and_write_anew(scene, router)
    await router.promote(["one"], scene.plan.configs[-1].name, 0.0, EVERYONE)


async def restored_from_before_a_forget(scene: Scene, router: Federation) -> None:
    """At first: a tier is what it was in the middle of a move, before its record was forgotten."""
    below = scene.stores["episodic"]
    [record] = await scene.stores["working"].read(["one"])
    await below.transfer([as_draft(record, "working", 0.0)])
    backup = below.backup()
    await router.consolidate()
    await forget_by_id(scene, router)
    below.restore(backup)


async def close_and_reinforce(scene: Scene, router: Federation) -> None:
    await close(scene, router)
    await reinforce(scene, router)


async def touch_and_close(scene: Scene, router: Federation) -> None:
    await touch(scene, router)
    await close(scene, router)


async def touch_and_sweep(scene: Scene, router: Federation) -> None:
    await touch(scene, router)
    await sweep(scene, router)


async def touched(scene: Scene, router: Federation) -> None:
    """At first: a record that was recalled once."""
    await router.touch(["one"], "2025-01-01T00:00:00.000Z")


async def close_and_promote(scene: Scene, router: Federation) -> None:
    await close(scene, router)
    await promote(scene, router)


async def expect_one(scene: Scene, router: Federation) -> None:
    """Nothing is held at first; the judge looks for what is written."""
    scene.expect(ONE, oracle.State())


async def rewritten_twice(scene: Scene, router: Federation) -> None:
    for draft in (AGAIN, NEWEST):
        with scene.doing("one", oracle.written(draft)):
            await router.write([draft], EVERYONE)
