"""Servers on stdio with one fault: each fails at the requirement that it breaks, and nowhere else."""

import shlex
import sys
from pathlib import Path

import pytest

from a2m_conformance.runner import Options, run
from a2m_conformance.stdio import StdioWire

PROXY = Path(__file__).parent / "broken_stdio.py"
# What a proxy of lines can break; the other subjects do not depend on the transport.
SUBJECTS = ("STDIO", "PUSH", "SCOPES", "RPC", "EVENTS", "REMEMBER")


@pytest.mark.parametrize(
    ("fault", "requirements"),
    [
        ("none", ()),
        ("greets", ("STDIO-01",)),
        ("ends badly", ("STDIO-02",)),
        ("stays", ("STDIO-02",)),
        ("skips bad lines", ("RPC-01", "STDIO-03")),
        ("answers notifications", ("STDIO-05", "STDIO-07")),
        ("asks", ("RPC-12",)),
        ("pushes nothing", ("PUSH-02", "PUSH-07")),
        ("takes kinds for all", ("PUSH-07",)),
        ("shows another owner", ("SCOPES-03",)),
        ("forgets of another owner", ("SCOPES-04",)),
    ],
)
async def test_a_broken_server_fails_where_it_is_broken(failed, fault, requirements):
    wire = await StdioWire.start(shlex.join([sys.executable, str(PROXY), fault]))
    try:
        finished = await run(wire, Options(only=SUBJECTS, slow=False))
    finally:
        await wire.close()
    assert sorted(failed(finished)) == sorted(requirements), failed(finished)
