"""A dispatcher as the settings of its server want it."""

from __future__ import annotations

from a2m_server.dispatch import Dispatcher
from a2m_server.events import Events
from a2m_server.quota import Quota, Tally
from a2m_server.redaction import redactor_of
from a2m_server.settings import ServerSettings
from a2m_server.store import MemoryStore


def dispatcher(
    store: MemoryStore,
    settings: ServerSettings,
    *,
    events: Events | None = None,
    tally: Tally | None = None,
) -> Dispatcher:
    """The dispatcher over a store; raises `ValueError` where what the settings ask for is not installed."""
    quota = Quota(settings.quota, tally)
    return Dispatcher(store, events=events, quota=quota, redactor=redactor_of(settings.redact))
