"""Ports of loopback for the services of a stack."""

from __future__ import annotations

import random

from stack import PORTS

from a2m_cli.federation import is_free


def free_ports() -> dict[str, int]:
    """A free one for each service, below the ephemeral ports: no client of ours takes one meanwhile."""
    found: dict[str, int] = {}
    while len(found) < len(PORTS):
        port = random.randrange(12_000, 30_000)
        if is_free(port) and port not in found.values():
            found[[*PORTS][len(found)]] = port
    return found
