"""Options of the proxy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from thresher.errors import OptionError
from thresher.serve.app import AppOptions
from thresher.serve.proxy.api_routes import list_api_names
from thresher.serve.proxy.fit_options import FitOptions

DEFAULT_PORT = 8788


@dataclass(frozen=True, kw_only=True)
class ProxyOptions(FitOptions):
    """Where the proxy listens and forwards to, and how it fits requests."""

    app: AppOptions = field(default_factory=AppOptions)
    upstreams: Mapping[str, str] = field(default_factory=dict)
    """Base URL for each dialect; the empty name means all. Default: the vendors' own."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Base URL for each name in a path `/thresher/to/NAME/…`, for a client with several upstreams."""
    connect_seconds: float = 10.0
    silence_seconds: float = 600.0
    """Maximum time without a byte from the upstream."""
    keep_warm: float = 0.0
    """Dollars that keeping the caches of idle conversations warm may cost in all; 0 keeps none warm."""

    diagnose_cache: bool = False
    """Ask the API with each request why its cache did not serve it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_warm < 0:
            raise OptionError(f"`--keep-warm` must be a number of dollars, got {self.keep_warm}")
        for name, url in self.upstreams.items():
            if name and name not in list_api_names():
                valid = ", ".join(list_api_names())
                raise OptionError(f"unknown API `{name}` in `--upstream {name}={url}`; valid: {valid}")
            _check_base_url(url)
        for url in self.routes.values():
            _check_base_url(url)


def parse_upstreams(values: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of `--upstream`: `URL` for all APIs, or `API=URL` for one."""
    upstreams: dict[str, str] = {}
    for value in values:
        name, equals, url = value.partition("=")
        if not equals or "/" in name:
            name, url = "", value
        if name in upstreams:
            raise OptionError(f"`--upstream` names {f'`{name}`' if name else 'an address for all APIs'} twice")
        upstreams[name] = url
    return upstreams


def _check_base_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise OptionError(f"an upstream must be an http or https address without a query, got `{url}`")
    if "@" in parts.netloc:
        raise OptionError("an upstream must not contain a user name or password; the client sends its own key")
