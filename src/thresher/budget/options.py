"""Keyword options of `plan`, `fit` and `Window`, typed so that a type checker finds an unknown one."""

from collections.abc import Iterable
from typing import TypedDict

from thresher.edits import ThinkingRule
from thresher.errors import OptionError
from thresher.tokens import TokenWeights


class FilterOptions(TypedDict, total=False):
    """Options that add a step to the chosen policy or take one away; None counts as not set."""

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
    """Options of `plan`, `fit` and `Window`; None counts as not set."""

    budget: int | str | None
    """Tokens: `60_000` or `"60k"`. Without it, and with a `model`, 70 % of the model's context window."""
    model: str | None
    thinking: ThinkingRule | None
    """What an edit means for signed thinking behind it. By default what the model wants."""
    counter: str
    """The token counter, by default `"auto"`."""
    scale: TokenWeights | None
    """Token weights. By default the model's, with the named `counter`."""


def check_option_names(given: Iterable[str], known: Iterable[str], origin: str = "") -> None:
    """Refuse an unknown option, and suggest the known one that it resembles."""
    names = list(known)
    for name in given:
        if name not in names:
            from difflib import get_close_matches  # noqa: PLC0415 - only for an error

            close = get_close_matches(name, names, 1)
            hint = f"did you mean `{close[0]}`? The options are" if close else "the options are"
            raise OptionError(f"{origin}unknown option `{name}`; {hint} {', '.join(names)}")
