"""Read-only servers with one fault: each fails at what it breaks, and nowhere else."""

import pytest


async def some_writes_are_invalid(call):
    empty = call.of("remember") and call.params == {"records": [{"content": 5}]}
    return call.refuse(-32602) if empty else await call.serve()


async def a_forget_of_nothing_succeeds(call):
    nothing = call.of("forget") and call.params == {"ids": []}
    return call.answer(forgotten=0) if nothing else await call.serve()


async def summarize_selects_nothing(call):
    return call.answer(records=[], read=0, written=0) if call.of("summarize") else await call.serve()


async def the_oldest_are_shown(call):
    if call.of("timeline") and call.params.get("limit") == 2:
        everything = (await call.ask("timeline"))["records"]
        return call.answer(records=everything[:2])
    return await call.serve()


async def recall_ignores_filters(call):
    if call.of("recall") and call.where.keys() == {"id"} and call.params.get("limit") == 5:
        del call.params["where"]
    return await call.serve()


async def recall_finds_nothing(call):
    words = call.of("recall") and str(call.params.get("query")).startswith("the ")
    return call.answer(records=[]) if words else await call.serve()


@pytest.mark.parametrize(
    ("requirement", "mutation"),
    [
        ("READONLY-01", some_writes_are_invalid),
        ("READONLY-02", a_forget_of_nothing_succeeds),
        ("READONLY-03", summarize_selects_nothing),
        ("READONLY-04", the_oldest_are_shown),
        ("READONLY-05", recall_ignores_filters),
        ("READONLY-06", recall_finds_nothing),
    ],
)
async def test_a_broken_server_fails_where_it_is_broken(try_read_only, failed, requirement, mutation):
    finished = await try_read_only(mutation)
    assert list(failed(finished)) == [requirement], failed(finished)
