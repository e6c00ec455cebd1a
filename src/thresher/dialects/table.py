"""Registry of dialects by name. Each value is an import path, resolved on first use.

A third-party package registers its dialect in the entry-point group `thresher.dialects`, with the name of the dialect
and the path of a `Dialect` object. The group `thresher.formats` is also accepted.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from thresher.dialects.base import Dialect
from thresher.dialects.plugins import load_plugins
from thresher.errors import FormatError

DIALECTS: dict[str, str] = {
    "anthropic": "thresher.dialects.anthropic.dialect",
    "openai-chat": "thresher.dialects.openai_chat.dialect",
    "openai-responses": "thresher.dialects.openai_responses.dialect",
    "gemini": "thresher.dialects.gemini.dialect",
}


@cache
def _plugin_dialects() -> dict[str, Dialect]:
    plugins = load_plugins("thresher.dialects", DIALECTS)
    return {name: found for name, found in plugins.items() if isinstance(found, Dialect)}


@cache
def find_dialect(name: str) -> Dialect:
    """Return the dialect of that name."""
    if name in DIALECTS:
        found: Dialect = import_module(DIALECTS[name]).DIALECT
        return found
    if name in _plugin_dialects():
        return _plugin_dialects()[name]
    raise FormatError(f"unknown dialect `{name}`; valid dialects: {', '.join(dialect_names())}")


def dialect_names() -> list[str]:
    """Return all names, built-in dialects first."""
    return [*DIALECTS, *_plugin_dialects()]


def iter_dialects() -> Iterator[Dialect]:
    """Yield every dialect, built-in dialects first; each is imported only when it is reached."""
    yield from map(find_dialect, DIALECTS)
    yield from _plugin_dialects().values()


def load_dialects() -> list[Dialect]:
    """Return every dialect."""
    return [*iter_dialects()]


@cache
def get_native_dialect(name: str) -> Dialect | None:
    """Return the dialect that vendor extras name; None if they name a transcript format."""
    return find_dialect(name) if name in DIALECTS or name in _plugin_dialects() else None


@cache
def find_vendor_dialect(vendor: str) -> Dialect:
    """Return the dialect of a vendor's models: the vendor's own, otherwise the one that many vendors share."""
    own = next((dialect for dialect in iter_dialects() if dialect.vendor == vendor), None)
    return own or next(dialect for dialect in iter_dialects() if not dialect.vendor)
