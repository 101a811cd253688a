"""`python -m a2m_server.ready [URL]`: whether a server is ready, for the health checks of containers.

The URL, that of its `/readyz`, is `A2M_READY` where none is given. Ends with 0 when it answers 200, else 1.
"""

from __future__ import annotations

import http.client
import os
import sys
from urllib.parse import urlsplit

_SECONDS = 4.0


def main() -> int:
    url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("A2M_READY", "")
    where = urlsplit(url)
    if where.scheme != "http" or where.hostname is None:
        print("expected the URL of a /readyz, http://127.0.0.1:8778/readyz or the like", file=sys.stderr)
        return 1
    # The plain client of the standard library: a check every few seconds should not load a larger one.
    connection = http.client.HTTPConnection(where.hostname, where.port or 80, timeout=_SECONDS)
    try:
        connection.request("GET", where.path or "/")
        answer = connection.getresponse()
        said = answer.read(1_000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    print(said)
    return 0 if answer.status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main())
