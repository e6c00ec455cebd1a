"""A word to whoever asked a search for what another command, or another option, would find."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from shlex import quote
from typing import TYPE_CHECKING

from thresher.cli.common import program_name
from thresher.render.text import plural

if TYPE_CHECKING:
    from thresher.memory import Memory
    from thresher.memory.results import SearchResults

_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
_EXTENSION_LIST = (
    "c cc cfg cpp cs css csv go h hpp html ini ipynb java js json jsonl jsx kt lock log lua md mjs php proto py pyi "
    "rb rs rst scala sh sql svelte swift tf toml ts tsx txt vue xml yaml yml zig"
)
_EXTENSIONS = frozenset(_EXTENSION_LIST.split())


def suggest_searches(memory: "Memory", answer: "SearchResults", words: str, *, by_file: bool) -> Iterator[str]:
    """What else to try: where nothing was found, or a path is all that was asked for."""
    spoken = words.replace('"', " ").split()
    if answer.found and len(spoken) > 1:
        return
    for word in spoken:
        if not answer.found and _ID.fullmatch(word) and _is_session_id(memory, word):
            yield f"`{word}` names a session, and a search looks for words in sessions: {program_name()} show {word}"
        elif not by_file and _is_path(word):
            yield f"`{word}` looks like a file; what touched it: {program_name()} search --file {quote(word)}"


def format_missing_page(answer: "SearchResults", sessions: int) -> str:
    """What to say of a page behind the last one, with so many sessions on each."""
    pages = min(-(-answer.found // sessions), answer.page - 1)
    found = plural(answer.found, "session")
    return f"there is no page {answer.page}; matches in {found} are on {plural(pages, 'page')}"


def _is_path(word: str) -> bool:
    if "/" in word.strip("/"):
        return "://" not in word
    return PurePath(word).suffix[1:].lower() in _EXTENSIONS


def _is_session_id(memory: "Memory", start: str) -> bool:
    from thresher.store import AmbiguousIdError, NotStoredError

    try:
        memory.facts(start)
    except NotStoredError:
        return False
    except AmbiguousIdError:  # it still shows which ones
        return True
    return True
