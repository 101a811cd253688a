"""The router's server: settings and configuration in, application out."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI

from a2m_protocol.client import Client
from a2m_retrieval.cross import CrossEncoder
from a2m_retrieval.embed.settings import embedder
from a2m_router.config import ConfigError, TierConfig, load
from a2m_router.coordination import Locks, Readers
from a2m_router.counts import Counts
from a2m_router.federation import Federation
from a2m_router.places import Places
from a2m_router.remote import RemoteTier
from a2m_router.settings import RouterSettings
from a2m_router.shared import Shared
from a2m_router.steps import Observer, unobserved
from a2m_router.tiers import Member
from a2m_server import requests, service
from a2m_server.dispatch import Dispatcher
from a2m_server.events import EventLog
from a2m_server.http import serve_handler
from a2m_server.metrics import Metrics


def create(settings: RouterSettings | None = None, *, observer: Observer = unobserved) -> FastAPI:
    """The A2M server of a federation; raises `ValueError` when its configuration cannot work."""
    settings = settings or RouterSettings()
    metrics = Metrics()
    return serve_handler(dispatcher(settings, Counts(metrics.registry), observer), settings, metrics)


def dispatcher(
    settings: RouterSettings, counts: Counts | None = None, observer: Observer = unobserved
) -> Dispatcher:
    """The router without a transport, so that HTTP and stdio serve the same."""
    counts = counts or Counts()
    places = Places(settings.places)
    try:
        config = places.over(load(settings.config))
    except ConfigError as error:
        raise ValueError(str(error)) from error
    patience = settings.tier_timeout * 2
    url = settings.shared_url
    shared = None if url is None else Shared(url, patience, settings.lease_seconds)
    events = EventLog() if shared is None else shared.events
    federation = Federation(
        config.name,
        [_member(tier, settings, counts) for tier in config.tiers],
        events,
        locks=Locks() if shared is None else shared.locks,
        readers=Readers(patience) if shared is None else shared.readers,
        interval=settings.sweep_interval,
        observer=observer,
        counts=counts,
        shared=shared,
        embedder=embedder(settings.embedding),
        trust=config.trust,
        cross_encoder=CrossEncoder(settings.rerank) if settings.rerank.url else None,
        mount=partial(_remote, settings, counts),
        places=places,
    )
    tally = None if shared is None else shared.tally
    return service.dispatcher(federation, settings, events=events, tally=tally)


def _member(tier: TierConfig, settings: RouterSettings, counts: Counts) -> Member:
    store = _remote(settings, counts, tier.name, tier.url)
    return Member(tier, store, lambda: store.silence)


def _remote(settings: RouterSettings, counts: Counts, name: str, url: str) -> RemoteTier:
    client = Client.http(
        url,
        token_file=settings.tier_token_file,
        timeout=settings.tier_timeout,
        retries=settings.tier_retries,
        headers=requests.carried,
    )
    return RemoteTier(client, name, probe_interval=settings.probe_interval, counts=counts)
