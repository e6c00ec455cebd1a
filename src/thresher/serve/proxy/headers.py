"""The headers that the proxy passes on: all but the ones that belong to one connection, and its own."""

from collections.abc import Iterable

from multidict import CIMultiDict

_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
_REPLACED = frozenset({"host", "expect"})
"""Headers of a request that the HTTP client sets itself, or that the server has already answered."""
OWN_HEADER = "x-thresher"
"""Header of a request: `off` passes it through."""
OWN_HEADER_PREFIX = "x-thresher-"
RawHeaders = Iterable[tuple[bytes, bytes]]


def copy_request_headers(raw: RawHeaders) -> CIMultiDict[str]:
    """Return the headers of a request to send upstream, in their order and with repetitions."""
    return _copy_headers(raw, _REPLACED)


def copy_response_headers(raw: RawHeaders) -> CIMultiDict[str]:
    """Return the headers of a response to send to the client."""
    return _copy_headers(raw, frozenset())


def _copy_headers(raw: RawHeaders, also: frozenset[str]) -> CIMultiDict[str]:
    pairs = [(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in raw]
    dropped = _HOP_BY_HOP | also
    for name, value in pairs:
        if name.lower() == "connection":  # it lists further headers of this connection
            dropped |= {word.strip().lower() for word in value.split(",")}
    kept = [(name, value) for name, value in pairs if name.lower() not in dropped]
    return CIMultiDict((name, value) for name, value in kept if not is_own_header(name))


def is_own_header(name: str) -> bool:
    """Return True for a header that is meant for Thresher."""
    lower = name.lower()
    return lower.startswith(OWN_HEADER_PREFIX) or lower == OWN_HEADER
