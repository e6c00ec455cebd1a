"""Shared code of policies: validate options, select tools."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, get_args

from thresher.edits import Edit
from thresher.errors import OptionError
from thresher.model import History
from thresher.model.tool_calls import ToolUse
from thresher.model.tool_catalog import ToolCategory
from thresher.model.tool_outcomes import has_failed

Policy = Callable[[History], Iterable[Edit]]
"""A function from a history to proposed edits, or a frozen dataclass with `__call__`, whose fields are its options."""

PolicyLike = str | Policy | Sequence[str | Policy]
"""Name of a preset or policy, a policy, or a sequence of them."""

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
"""Current names of actions, by their names in earlier versions."""


def check_count(policy: str, **options: Any) -> None:
    """Raise an error unless each option is a non-negative integer."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise OptionError(f"policy `{policy}`: `{name}` must be a whole number, 0 or more, got {value!r}")


def check_words(policy: str, known: Iterable[str] | None = None, **options: Any) -> None:
    """Raise an error unless each option is a list of strings; with `known`, accept only these strings."""
    for name, value in options.items():
        if isinstance(value, str) or not all(isinstance(word, str) for word in value):
            raise OptionError(f"policy `{policy}`: `{name}` must be a list of strings, got {value!r}")
        unknown = sorted(set(value) - set(known)) if known is not None else []
        if unknown:
            raise OptionError(
                f"policy `{policy}`: unknown value `{unknown[0]}` in `{name}`. Valid values: {', '.join(known or ())}"
            )


def check_choice(policy: str, name: str, value: Any, known: Iterable[str]) -> None:
    """Raise an error unless the value is among the known ones."""
    if value not in known:
        raise OptionError(f"policy `{policy}`: `{name}` must be one of {', '.join(known)}, got {value!r}")


def is_tool_selected(link: ToolUse, names: tuple[str, ...], categories: tuple[str, ...]) -> bool:
    """Return whether a call's tool matches one of the names or globs (ignoring case) or categories."""
    return link.use.category in categories or (bool(names) and matches_any_glob(link.call.name, names))


@lru_cache(maxsize=1024)
def matches_any_glob(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches one of the globs, ignoring case."""
    lowered = name.lower()
    return any(fnmatchcase(lowered, pattern.lower()) for pattern in patterns)


def is_failed_call(link: ToolUse) -> bool:
    """Return whether a call has no result, or one that reports a failure, with or without an error flag."""
    return link.result is None or has_failed(link.result, link.use)
