"""A server without a fault passes, and the suite leaves it as it was."""

import asyncio

import httpx

from a2m_conformance.http import HttpWire
from a2m_conformance.runner import Options, run
from a2m_server.http import create_app
from a2m_server.memory import MemoryTier
from a2m_server.settings import ServerSettings


async def test_a_healthy_server_fails_no_requirement(try_server, failed):
    finished = await try_server(options=Options())
    assert failed(finished) == {}
    assert finished.passed


async def test_a_server_that_holds_what_a_run_left_passes_again(healthy, run_on, failed):
    await run_on(healthy, Options(slow=False))
    assert failed(await run_on(healthy, Options(slow=False))) == {}


async def test_a_run_forgets_what_it_wrote(healthy, run_on, ask):
    await ask(healthy, "remember", records=[{"content": "was here before"}])
    await run_on(healthy, Options(slow=False))
    left = [record["content"] for record in (await ask(healthy, "timeline"))["records"]]
    assert left == ["was here before"]


async def test_a_run_of_one_prefix_runs_nothing_else(try_server):
    finished = await try_server(options=Options(only=("WHERE-", "RECALL-01")))
    ids = {outcome.requirement.id for outcome in finished.outcomes}
    assert "RECALL-01" in ids
    assert all(name.startswith(("WHERE-", "RECALL-01")) for name in ids)


async def test_a_hang_fails_its_own_check_and_not_the_run(try_server, failed):
    async def hang(call):
        if call.of("recall") and str(call.params.get("query")).startswith("what about"):
            await asyncio.sleep(3600)
        return await call.serve()

    finished = await try_server(hang, options=Options(only=("RECALL-",), timeout=5))
    assert list(failed(finished)) == ["RECALL-09"]
    assert "no end after" in failed(finished)["RECALL-09"]


async def test_a_store_without_a_width_of_vectors_is_not_given_one_unasked(healthy, run_on, ask, failed):
    finished = await run_on(healthy, Options(slow=False, dimensions=None))
    assert failed(finished) == {}
    assert (await ask(healthy, "describe"))["embeddings"]["dimensions"] is None
    skipped = {o.requirement.id for o in finished.outcomes if "--dimensions" in o.detail}
    assert {"EMBEDDINGS-02", "EMBEDDINGS-04"} <= skipped
    assert all(name.startswith("EMBEDDINGS") for name in skipped)


async def test_local_rules_can_be_left_out(try_server):
    finished = await try_server(options=Options(only=("FORGET-",), local=False))
    skipped = {outcome.requirement.id for outcome in finished.outcomes if outcome.status == "skipped"}
    assert skipped == {outcome.requirement.id for outcome in finished.outcomes if outcome.requirement.local}
    assert "FORGET-06" in skipped


async def test_a_server_whose_caller_is_trusted_keeps_owners_apart(tmp_path, failed):
    secret = tmp_path / "token"
    secret.write_text("a secret of 32 characters or more\n".replace(" ", "-"))
    secret.chmod(0o600)
    app = create_app(MemoryTier(), ServerSettings(token_file=secret))
    async with app.router.lifespan_context(app):
        wire = HttpWire(
            "http://127.0.0.1:8780/", secret.read_text().strip(), through=httpx.ASGITransport(app)
        )
        finished = await run(wire, Options(only=("SCOPES", "HTTP"), slow=False, trusted=True))
        await wire.close()
    assert failed(finished) == {}
    passed = {outcome.requirement.id for outcome in finished.outcomes if outcome.status == "passed"}
    assert {"SCOPES-01", "SCOPES-04", "HTTP-10"} <= passed


async def test_a_federation_fails_no_requirement_of_tiers(try_federation, failed):
    finished = await try_federation()
    assert failed(finished) == {}
    skipped = {outcome.requirement.id for outcome in finished.outcomes if outcome.status == "skipped"}
    assert not {name for name in skipped if name.startswith("TIERS-")}


async def test_a_server_that_refuses_writes_is_judged_as_read_only(try_read_only, failed):
    finished = await try_read_only()
    assert finished.read_only
    assert failed(finished) == {}
    passed = {outcome.requirement.id for outcome in finished.outcomes if outcome.status == "passed"}
    assert {f"READONLY-0{number}" for number in range(1, 7)} <= passed
