"""Text for a model, made of what was read."""

from a2m_conformance.check import check
from a2m_conformance.outcome import NotApplicable, expect
from a2m_conformance.probe import Probe
from a2m_conformance.shapes import Json, is_list, is_object
from a2m_conformance.values import equal, ids

_METHODS = ("recall", "timeline")
_TURNS = (("user", "Where do we meet?"), ("assistant", "At the old harbour."), ("user", "At ten then."))


@check("PROMPT-01")
async def prompts_are_described(probe: Probe) -> None:
    about = probe.about.get("prompt")
    expect(is_object(about), f"prompt in describe is {about!r}")
    expect("auto" in (about.get("styles") or []), f"styles is {about.get('styles')!r}")
    expect("template" in (about.get("methods") or []), f"methods is {about.get('methods')!r}")
    model = about.get("model", 0)
    expect(model is None or isinstance(model, str), f"model is {model!r}")


@check("PROMPT-02")
async def text_is_added(probe: Probe) -> None:
    params = await _readable(probe)
    for method in _METHODS:
        result = await probe.call(method, **params, prompt=True)
        expect(isinstance(result.get("prompt"), str), f"the prompt of {method} is {result.get('prompt')!r}")
        named = result.get("prompt_ids")
        expect(is_list(named), f"prompt_ids is {named!r}")
        expect(set(named) <= set(ids(result["records"])), "the prompt names a record that is not returned")
        expect(named and result["prompt"], "the prompt is empty without a budget")


@check("PROMPT-03")
async def records_are_the_same(probe: Probe) -> None:
    params = await _readable(probe)
    for method in _METHODS:
        plain = ids((await probe.call(method, **params))["records"])
        for prompt in (True, {"style": "facts", "budget": 10}, {"style": "transcript", "cite": True}):
            result = await probe.call(method, **params, prompt=prompt)
            equal(ids(result["records"]), plain, f"the records of {method} with a prompt")


@check("PROMPT-04")
async def text_is_the_same(probe: Probe) -> None:
    params = await _readable(probe)
    for method in _METHODS:
        for style in ("facts", "transcript", "auto"):
            asked = {"style": style} if style in probe.about["prompt"]["styles"] else True
            first = await probe.call(method, **params, prompt=asked)
            second = await probe.call(method, **params, prompt=asked)
            equal(second["prompt"], first["prompt"], f"the prompt of {method} asked twice")
            equal(second["prompt_ids"], first["prompt_ids"], "prompt_ids")


@check("PROMPT-05")
async def none_is_no_prompt(probe: Probe) -> None:
    params = await _readable(probe)
    for method in _METHODS:
        result = await probe.call(method, **params, prompt={"method": "none"})
        expect("prompt" not in result and "prompt_ids" not in result, "the method none made a prompt")


@check("PROMPT-06")
async def budgets_drop_whole_records(probe: Probe) -> None:
    contents = [f"{probe.word()} {'long ' * 12}{probe.word()}" for _ in range(5)]
    await probe.write(*contents)
    full = await probe.call("timeline", where=probe.mine_where, prompt=True)
    by_id = {record["id"]: record["content"] for record in full["records"]}
    for budget in range(20, len(full["prompt"]) + 20, 40):
        result = await probe.call("timeline", where=probe.mine_where, prompt={"budget": budget})
        text, named = result["prompt"], result["prompt_ids"]
        expect(len(text) <= budget, f"{len(text)} characters with a budget of {budget}")
        for identifier, content in by_id.items():
            whole, part = content in text, content.split()[0] in text
            equal(whole, identifier in named, f"a record is whole in the text of {budget} characters")
            equal(part, whole, f"a record is cut in the text of {budget} characters")


@check("PROMPT-07")
async def nothing_fits(probe: Probe) -> None:
    params = await _readable(probe)
    for method in _METHODS:
        result = await probe.call(method, **params, prompt={"budget": 1})
        equal([result.get("prompt"), result.get("prompt_ids")], ["", []], "prompt and ids with a budget of 1")


@check("PROMPT-08")
async def unknown_options_are_refused(probe: Probe) -> None:
    for method in _METHODS:
        for prompt in ({"method": "no-such"}, {"style": "no-such"}, {"method": "template", "style": "Facts"}):
            await probe.refused(method, {"limit": 1, "prompt": prompt}, -32602)
        no_model = {"method": "model", "model": f"no-such-{probe.mark}"}
        await probe.refused(method, {"limit": 1, "prompt": no_model}, -32602)


@check("PROMPT-09")
async def missing_methods_are_refused(probe: Probe) -> None:
    missing = [name for name in ("model",) if name not in probe.about["prompt"]["methods"]]
    if not missing:
        raise NotApplicable("the server has every method")
    for method in _METHODS:
        await probe.refused(method, {"limit": 1, "prompt": {"method": missing[0]}}, -32602)


@check("PROMPT-10")
async def styles_are_served(probe: Probe) -> None:
    params = await _readable(probe)
    for style in probe.about["prompt"]["styles"]:
        for method in _METHODS:
            result = await probe.call(method, **params, prompt={"method": "template", "style": style})
            expect(result["prompt"], f"the style {style} made no text")


@check("PROMPT-11")
async def text_holds_the_records(probe: Probe) -> None:
    params = await _readable(probe)
    for style in ("facts", "transcript", "auto"):
        if style not in probe.about["prompt"]["styles"]:
            continue
        result = await probe.call("timeline", **params, prompt={"style": style})
        by_id = {record["id"]: record["content"] for record in result["records"]}
        expect(result["prompt_ids"], f"the style {style} names no record")
        for identifier in result["prompt_ids"]:
            expect(
                by_id[identifier] in result["prompt"], f"the text of {style} lacks a content that it names"
            )


@check("PROMPT-12")
async def keys_are_cited(probe: Probe) -> None:
    key = f"{probe.mark}/cited"
    await probe.write(probe.record("a fact", key=key))
    await _cites(probe, key)


@check("PROMPT-13")
async def uris_are_cited(probe: Probe) -> None:
    uri = f"https://example.org/{probe.mark}"
    await probe.write(probe.record("a page", uri=uri))
    await _cites(probe, uri)


@check("PROMPT-14")
async def nothing_makes_no_text(probe: Probe) -> None:
    for method in _METHODS:
        result = await probe.call(method, where={"id": probe.word()}, prompt=True)
        equal(result.get("prompt_ids"), [], "prompt_ids of no records")
        expect(isinstance(result.get("prompt"), str), f"the prompt of no records is {result.get('prompt')!r}")


@check("PROMPT-15")
async def options_have_types(probe: Probe) -> None:
    for prompt in (
        5,
        "template",
        ["template"],
        {"budget": "10"},
        {"budget": -1},
        {"style": 5},
        {"cite": "yes"},
    ):
        await probe.refused("timeline", {"limit": 1, "prompt": prompt}, -32602)


async def _readable(probe: Probe) -> dict[str, Json]:
    if probe.read_only:
        if not (await probe.call("timeline", limit=3))["records"]:
            raise NotApplicable("the server holds no record")
        return {"limit": 3}
    await probe.write(*(probe.record(content, role=role) for role, content in _TURNS))
    return {"where": probe.mine_where}


async def _cites(probe: Probe, mark: str) -> None:
    cited = await probe.call("timeline", where=probe.mine_where, prompt={"cite": True})
    expect(mark in cited["prompt"], f"{mark} is not cited")
    plain = await probe.call("timeline", where=probe.mine_where, prompt={"cite": False})
    expect(plain["prompt_ids"], "the prompt without cite is empty")
