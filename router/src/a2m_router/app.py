"""The router's server: settings and configuration in, application out."""

from __future__ import annotations

from fastapi import FastAPI

from a2m_protocol.client import Client
from a2m_router.config import ConfigError, load
from a2m_router.coordination import Readers
from a2m_router.federation import Federation
from a2m_router.remote import RemoteTier
from a2m_router.settings import RouterSettings
from a2m_router.steps import Observer, unobserved
from a2m_router.tiers import Member
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.http import serve_handler


def create(settings: RouterSettings | None = None, *, observer: Observer = unobserved) -> FastAPI:
    """The A2M server of a federation; raises `ValueError` when its configuration cannot work."""
    settings = settings or RouterSettings()
    return serve_handler(dispatcher(settings, observer=observer), settings)


def dispatcher(settings: RouterSettings, *, observer: Observer = unobserved) -> Dispatcher:
    """The router without a transport, so that HTTP and stdio serve the same."""
    events = EventLog()
    return Dispatcher(federation(settings, events, observer), events=events)


def federation(settings: RouterSettings, events: EventLog, observer: Observer = unobserved) -> Federation:
    try:
        config = load(settings.config)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    members = [
        Member(
            tier,
            RemoteTier(
                Client.http(
                    tier.url,
                    token_file=settings.tier_token_file,
                    timeout=settings.tier_timeout,
                    retries=settings.tier_retries,
                ),
                tier.name,
            ),
        )
        for tier in config.tiers
    ]
    return Federation(
        config.name,
        members,
        events,
        readers=Readers(settings.tier_timeout * 2),
        interval=settings.sweep_interval,
        observer=observer,
    )
