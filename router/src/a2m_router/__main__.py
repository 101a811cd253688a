"""`python -m a2m_router`: the router over HTTP, or with `--stdio` on the standard streams."""

from a2m_router.app import dispatcher
from a2m_router.settings import RouterSettings
from a2m_server.command import run


def main() -> None:
    run(dispatcher, RouterSettings, prog="a2m-router")


if __name__ == "__main__":
    main()
