"""Ask a running proxy for its status."""

import json
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from thresher.errors import OptionError

TIMEOUT_SECONDS = 10
TOKEN_HEADER = "X-Thresher-Token"


def fetch_status(host: str, port: int, token: str = "") -> dict[str, Any]:
    """Return the status of the proxy on a host and port."""
    address = f"[{host}]" if ":" in host else host
    request = Request(f"http://{address}:{port}/thresher/status", headers={TOKEN_HEADER: token} if token else {})
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_SECONDS) as answer:
            status: dict[str, Any] = json.load(answer)["proxy"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", error)
        message = f"no proxy answers on {address}:{port} ({reason}); `thresher proxy` starts one"
        raise OptionError(message) from error
    return status
