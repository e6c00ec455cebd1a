"""Keyword options of `plan`, `fit` and `Window`, typed so that type checkers report unknown ones."""

from collections.abc import Iterable
from typing import TypedDict

from thresher.edits import ThinkingRule
from thresher.errors import OptionError, suggest_name
from thresher.tokens import TokenWeights


class FilterOptions(TypedDict, total=False):
    """Options that add a step to the chosen policy or remove one; None means not set."""

    exclude_thinking: bool | None
    exclude_system_reminders: bool | None
    exclude_errors: bool | None
    exclude_subagent_calls: bool | None
    exclude_subagent_responses: bool | None
    exclude_tools: tuple[str, ...] | None
    exclude_tool_categories: tuple[str, ...] | None
    exclude_tool_calls_only: bool | None
    exclude_tool_results_only: bool | None
    exclude_failed_tools: bool | None
    exclude_empty: bool | None
    exclude_roles: tuple[str, ...] | None
    max_message_length: int | None
    custom_patterns: tuple[str, ...] | None


class PlanOptions(FilterOptions, total=False):
    """Options of `plan`, `fit` and `Window`; None means not set."""

    budget: int | str | None
    """Tokens, such as `60_000` or `"60k"`. Default with a `model`: 70 % of its context window."""
    model: str | None
    context_marks: tuple[str, ...] | None
    """First words of user messages that declare context, which is never removed."""
    thinking: ThinkingRule | None
    """Effect of an edit on the signed thinking that follows it. Default: as the model requires."""
    counter: str
    """Token counter. Default: `"auto"`."""
    scale: TokenWeights | None
    """Token weights. Default: the model's, with the named `counter`."""


def check_option_names(given: Iterable[str], known: Iterable[str], origin: str = "") -> None:
    """Raise an error for an unknown option, with the most similar valid option."""
    names = list(known)
    for name in given:
        if name not in names:
            hint = suggest_name(name, names)
            raise OptionError(f"{origin}unknown option `{name}`.{hint} Valid options: {', '.join(names)}")
