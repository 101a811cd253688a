"""A server without a fault passes, and the suite leaves it as it was."""

from a2m_conformance.runner import Options


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


async def test_local_rules_can_be_left_out(try_server):
    finished = await try_server(options=Options(only=("FORGET-",), local=False))
    skipped = {outcome.requirement.id for outcome in finished.outcomes if outcome.status == "skipped"}
    assert skipped == {outcome.requirement.id for outcome in finished.outcomes if outcome.requirement.local}
    assert "FORGET-06" in skipped
