"""`python -m a2m_router`: the router over HTTP, or with `--stdio` on the standard streams."""

from a2m_router.app import dispatcher
from a2m_router.counts import Counts
from a2m_router.settings import RouterSettings
from a2m_server.command import run
from a2m_server.dispatch import Dispatcher
from a2m_server.metrics import Metrics


def main() -> None:
    run(_handler, RouterSettings, prog="a2m-router")


def _handler(settings: RouterSettings, metrics: Metrics) -> Dispatcher:
    return dispatcher(settings, Counts(metrics.registry))


if __name__ == "__main__":
    main()
