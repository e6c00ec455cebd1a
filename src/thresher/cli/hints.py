"""Hints for a search that would work better with another command or option."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from shlex import quote
from typing import TYPE_CHECKING

from thresher.cli.common import program_name
from thresher.render.text import plural, strip_control_codes

if TYPE_CHECKING:
    from thresher.memory import Memory
    from thresher.memory.results import SearchResults

_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
_EXTENSION_LIST = (
    "c cc cfg cpp cs css csv go h hpp html ini ipynb java js json jsonl jsx kt lock log lua md mjs php proto py pyi "
    "rb rs rst scala sh sql svelte swift tf toml ts tsx txt vue xml yaml yml zig"
)
_EXTENSIONS = frozenset(_EXTENSION_LIST.split())


def suggest_searches(memory: "Memory", results: "SearchResults", text: str, *, by_file: bool) -> Iterator[str]:
    """Suggest better commands for session ids and paths in a query that matched nothing or is a single word."""
    words = text.replace('"', " ").split()
    if results.found and len(words) > 1:
        return
    for word in words:
        if not results.found and _ID.fullmatch(word) and _is_session_id(memory, word):
            yield f"`{word}` is a session id; to read that session: {program_name()} show {word}"
        elif not by_file and _is_path(word):
            command = f"{program_name()} search --file {quote(strip_control_codes(word))}"
            yield f"`{word}` looks like a file; to find sessions that touch it: {command}"


def format_missing_page(results: "SearchResults", sessions: int) -> str:
    """Explain that the requested page does not exist; `sessions` is the number of sessions per page."""
    pages = min(-(-results.found // sessions), results.page - 1)
    found = plural(results.found, "session")
    return f"page {results.page} does not exist; the last page is {pages} ({found} found)"


def _is_path(word: str) -> bool:
    if "/" in word.strip("/"):
        return "://" not in word
    return PurePath(word).suffix[1:].lower() in _EXTENSIONS


def _is_session_id(memory: "Memory", prefix: str) -> bool:
    from thresher.store import AmbiguousIdError, NotStoredError

    try:
        memory.facts(prefix)
    except NotStoredError:
        return False
    except AmbiguousIdError:  # `show` lists the candidates
        pass
    return True
