"""What policies share: how options are checked, and how tools are chosen."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, get_args

from thresher.edits import Edit
from thresher.errors import OptionError
from thresher.model import History
from thresher.model.tool_calls import ToolUse
from thresher.model.tool_catalog import ToolCategory

Policy = Callable[[History], Iterable[Edit]]
"""What to change: proposes edits, builds nothing. A function, or a frozen dataclass whose fields are its options."""

PolicyLike = str | Policy | Sequence[str | Policy]
"""A preset's or a policy's name, a policy, or several of them."""

TOOL_CATEGORIES: tuple[str, ...] = get_args(ToolCategory)
RENAMED_ACTIONS = {
    "action": {
        "stub": "replace",
        "stub_calls": "replace_calls",
        "cut_calls": "truncate_calls",
        "line": "summarize",
        "cut": "truncate",
    }
}
"""Actions as earlier versions spelled them."""


def check_count(policy: str, **options: Any) -> None:
    """Refuse options that are no whole number from 0 up."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise OptionError(f"policy `{policy}`: `{name}` is a whole number from 0 up, not {value!r}")


def check_words(policy: str, known: Iterable[str] | None = None, **options: Any) -> None:
    """Refuse options that are no tuple of words, or hold a word that is not known."""
    for name, value in options.items():
        if isinstance(value, str) or not all(isinstance(word, str) for word in value):
            raise OptionError(f"policy `{policy}`: `{name}` is a list of words, not {value!r}")
        unknown = set(value) - set(known) if known is not None else ()
        if unknown:
            allowed = ", ".join(known or ())
            raise OptionError(f"policy `{policy}`: `{name}` knows {allowed}; not {', '.join(sorted(unknown))}")


def check_choice(policy: str, name: str, value: Any, known: Iterable[str]) -> None:
    """Refuse a value that is not among the known ones."""
    if value not in known:
        raise OptionError(f"policy `{policy}`: `{name}` is one of {', '.join(known)}; not {value!r}")


def is_tool_selected(link: ToolUse, names: tuple[str, ...], categories: tuple[str, ...]) -> bool:
    """Whether a call's tool is meant: by name or glob, whatever the case, or by category."""
    return link.use.category in categories or (bool(names) and matches_any_glob(link.call.name, names))


@lru_cache(maxsize=1024)
def matches_any_glob(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name is one of these, or fits a glob among them, whatever the case."""
    lowered = name.lower()
    return any(fnmatchcase(lowered, pattern.lower()) for pattern in patterns)


def is_failed_call(link: ToolUse) -> bool:
    """Whether a call came to nothing: an error, or no result at all."""
    return link.result is None or link.result.is_error
