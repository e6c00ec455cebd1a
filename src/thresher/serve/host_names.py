"""Host names that a request may name: the ones that only this server has.

A web page can make its own name point to this machine (DNS rebinding). Its requests then reach the server under that
name. So a request must name the server by a name that only the server has: the local address of the connection,
`localhost` on loopback, the machine's own name elsewhere, or a name that the user allows.
"""

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from thresher.errors import OptionError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """A host and a port, as a URL or a Host header names them; `port` is None if it does not."""

    host: str
    port: int | None


def parse_authority(text: str) -> Authority | None:
    """Parse `host`, `host:port` or `[::1]:port`; return None for anything else."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.netloc != text or "@" in text or not host:
        return None
    return Authority(host.rstrip("."), port)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def parse_allowed_hosts(names: Sequence[str]) -> frozenset[Authority]:
    """Parse the hosts that the user allows; one without a port is allowed with every port."""
    parsed = {name: parse_authority(name) for name in names}
    for name, authority in parsed.items():
        if authority is None:
            raise OptionError(f"an allowed host must be a name or `NAME:PORT`, got `{name}`")
    return frozenset(filter(None, parsed.values()))


class HostCheck:
    """Check of the host that a request names, and of the origin of the web page that sends it."""

    def __init__(self, host: str, allowed_hosts: Sequence[str] = ()) -> None:
        self._host = host.lower()
        self._allowed = parse_allowed_hosts(allowed_hosts)
        machine = socket.gethostname().lower()
        self._machine_names = {machine, f"{machine}.local"} - {"", ".local", "localhost"}

    def is_own_host(self, text: str, address: str, port: int | None, *, scheme: str = "http") -> bool:
        """Return True if a Host header names this server; `address` and `port` are the local end of the connection."""
        authority = parse_authority(text)
        if authority is None:
            return False
        if self._allowed & {authority, Authority(authority.host, None)}:
            return True
        return (authority.port or _DEFAULT_PORTS[scheme]) == port and authority.host in self._own_names(address)

    def is_own_origin(self, text: str, address: str, port: int | None) -> bool:
        """Return True if an Origin header names this server."""
        scheme, _, origin = text.partition("://")
        return scheme in _DEFAULT_PORTS and self.is_own_host(origin, address, port, scheme=scheme)

    def _own_names(self, address: str) -> set[str]:
        """Return the names of the server on a connection to this local address."""
        local = _normalize_address(address)
        return {self._host, local, *(LOOPBACK_NAMES if is_loopback(local) else self._machine_names)}


def _normalize_address(address: str) -> str:
    """Return an address as URLs write it: an IPv4 address that arrived over IPv6 is IPv4."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
