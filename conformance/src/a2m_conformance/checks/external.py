"""References to things outside."""

import asyncio

from a2m_conformance.check import check
from a2m_conformance.outcome import expect
from a2m_conformance.probe import Probe
from a2m_conformance.tables import WRONG_VALUES
from a2m_conformance.values import equal, fields, only

_URIS = (
    "https://example.org/a%20b?q=1#part",
    "file:///etc/hostname",
    "urn:isbn:0451450523",
    "HTTP://EXAMPLE.org:80/../x",
    "not a uri at all",
    "../é 🧠",
)


@check("EXTERNAL-01")
async def references_are_verbatim(probe: Probe) -> None:
    for uri in _URIS:
        (identifier,) = await probe.write(probe.record("see there", uri=uri, media_type="Text/X-Odd; a=b"))
        wanted = {"uri": uri, "media_type": "Text/X-Odd; a=b"}
        equal(fields(await probe.read(identifier), "uri", "media_type"), wanted, "the reference")


@check("EXTERNAL-02")
async def a_reference_is_enough(probe: Probe) -> None:
    await probe.write(probe.record(uri="https://example.org/picture.png", media_type="image/png"))
    equal(only(await probe.mine(), "the timeline").get("content"), "", "content")


@check("EXTERNAL-03")
async def references_are_not_fetched(probe: Probe) -> None:
    visitors: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitors.append((await reader.readline()).decode(errors="replace").strip())
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as trap:
        port = trap.sockets[0].getsockname()[1]
        uri = f"http://127.0.0.1:{port}/{probe.mark}.txt"
        await probe.write(probe.record(uri=uri, media_type="text/plain"), probe.record("text", uri=uri))
        await probe.mine()
        await probe.found(probe.mark)
        # Absence cannot be awaited: this is the time that a fetch in the background is given to show.
        await asyncio.sleep(0.5)
    expect(not visitors, f"the server fetched a uri: {visitors}")


@check("EXTERNAL-04")
async def references_are_text(probe: Probe) -> None:
    for field in ("uri", "media_type"):
        for value in WRONG_VALUES[field]:
            await probe.refused("remember", {"records": [probe.record("bad", **{field: value})]}, -32602)


@check("EXTERNAL-05")
async def no_reference_needs_content(probe: Probe) -> None:
    for record in (probe.record(media_type="text/plain"), probe.record(uri=None)):
        await probe.refused("remember", {"records": [record]}, -32602)
