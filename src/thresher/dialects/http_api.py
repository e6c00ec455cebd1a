"""How clients reach an API over HTTP: addresses, paths, errors."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from thresher.dialects.cache_comparison import CacheComparison


class HttpApi(Struct, frozen=True, kw_only=True):
    """The HTTP side of a dialect. Paths are regular expressions for the end of a path, because base URLs differ."""

    base_url: str
    """Address of the vendor."""
    generate_path: str
    """Requests that carry a conversation and return an answer."""
    count_path: str = ""
    """Requests that carry a conversation and return its number of tokens."""
    names_model_in_path: bool = False
    """True if the path names the model, and the body does not."""
    vendor_paths: str = ""
    """Start of other paths that only this vendor has."""
    vendor_headers: tuple[str, ...] = ()
    """Headers, in lower case, that only this vendor's clients send."""
    cache_comparison: CacheComparison | None = None
    """Fields with which the API explains a cache miss; None if it cannot."""
    build_error: Callable[[int, str], dict[str, Any]]
    """Function that returns the body of an error from a status and a message."""


def build_openai_error(status: int, message: str) -> dict[str, Any]:
    """Return an error as OpenAI's APIs and servers compatible with them write it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
