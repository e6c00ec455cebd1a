"""Every dialect by name. A row is an import path, resolved on first use.

A third-party package adds its own through the entry point group `thresher.dialects`: the name, and the path of an
object like the `DIALECT` of any codec here. The group `thresher.formats` is accepted, too.
"""

from functools import cache
from importlib import import_module

from thresher.dialects.base import Dialect
from thresher.dialects.plugins import load_plugins
from thresher.errors import FormatError

DIALECTS: dict[str, str] = {
    "anthropic": "thresher.dialects.anthropic.codec",
    "openai-chat": "thresher.dialects.openai_chat.codec",
    "openai-responses": "thresher.dialects.openai_responses.codec",
    "gemini": "thresher.dialects.gemini.codec",
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
    raise FormatError(f"no dialect is called `{name}`; known are {', '.join(dialect_names())}")


def dialect_names() -> list[str]:
    """Return all names, Thresher's own first."""
    return [*DIALECTS, *_plugin_dialects()]


def load_dialects() -> list[Dialect]:
    """Return every dialect."""
    return [find_dialect(name) for name in dialect_names()]
