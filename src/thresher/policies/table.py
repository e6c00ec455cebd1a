"""The table of policies, one row each; a policy's module is imported on first use.

A third-party package registers its policies in the entry point group `thresher.policies`: a name, and the path of a
frozen dataclass whose fields are its options, or of any callable that takes a history and yields edits.
"""

import warnings
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, get_type_hints

from msgspec import ValidationError, convert

from thresher.deprecation import rename_value, update_options
from thresher.dialects.plugins import POLICY_GROUP, load_plugins
from thresher.errors import OptionError, suggest_name
from thresher.policies.base import Policy

POLICIES: dict[str, str] = {
    "thinking": "thresher.policies.thinking:DropThinking",
    "reminders": "thresher.policies.reminders:StripReminders",
    "messages": "thresher.policies.messages:FilterMessages",
    "tools": "thresher.policies.tools:EditToolCalls",
    "subagents": "thresher.policies.subagents:DropSubagents",
    "reads": "thresher.policies.reads:DeduplicateReads",
    "edit-history": "thresher.policies.edit_history:SummarizeOldEdits",
    "output": "thresher.policies.output:TruncateOutput",
    "latest-only": "thresher.policies.latest_only:KeepLatestOnly",
    "superseded": "thresher.policies.superseded:RemoveSuperseded",
    "exchanges": "thresher.policies.exchanges:SummarizeExchanges",
    "batch-summary": "thresher.policies.batch_summary:SummarizeBatches",
    "mask": "thresher.policies.mask:MaskOldResults",
    "decay": "thresher.policies.decay:DecayResults",
    "sliding-window": "thresher.policies.sliding_window:SlidingWindow",
}
"""Path of each policy's class, by the policy's name."""
RENAMED_POLICIES = {
    "fading": "decay",
    "newest": "sliding-window",
    "recent": "latest-only",
    "diffs": "edit-history",
    "batches": "batch-summary",
    "development": "none",
}
"""Current names of policies and presets, by their old names, which are still accepted."""


@cache
def _plugin_policies() -> dict[str, Any]:
    plugins = load_plugins(POLICY_GROUP, {*POLICIES, *RENAMED_POLICIES})
    for name in [name for name, policy in plugins.items() if not callable(policy)]:
        warnings.warn(f"ignored the policy `{name}`: {plugins.pop(name)!r} is not callable", stacklevel=2)
    return plugins


def policy_names() -> list[str]:
    """Return the names of all policies, Thresher's own first."""
    return [*POLICIES, *_plugin_policies()]


def current_policy_name(name: str) -> str:
    """Return the current name of a policy or preset; an old name gives a warning."""
    current: str = rename_value("thresher", "policy", name, RENAMED_POLICIES)
    return current


def is_policy(name: str) -> bool:
    """Return whether a policy has that name; loads third-party policies only if Thresher has no such policy."""
    return name in POLICIES or name in _plugin_policies()


def policy_class(name: str) -> Any:
    """Return the class of a policy; a third-party policy may be any callable."""
    name = current_policy_name(name)
    if name in POLICIES:
        module, _, attribute = POLICIES[name].partition(":")
        return getattr(import_module(module), attribute)
    if name in _plugin_policies():
        return _plugin_policies()[name]
    names = policy_names()
    raise OptionError(f"unknown policy `{name}`.{suggest_name(name, names)} Valid policies: {', '.join(names)}")


def policy_options(name: str) -> dict[str, Any]:
    """Return the options of a policy with their types."""
    kind = policy_class(name)
    hints = get_type_hints(kind) if isinstance(kind, type) else {}
    options = fields(kind) if is_dataclass(kind) else ()
    return {field.name: hints[field.name] for field in options if field.name != "scale"}


def policy_name(policy: Policy) -> str:
    """Return the name of a policy in the table; for any other policy, return the name of its function or class."""
    kind = policy if hasattr(policy, "__name__") else type(policy)
    path = f"{kind.__module__}:{getattr(kind, '__name__', 'policy')}"
    own = next((name for name, known in POLICIES.items() if known == path), None)
    others = (name for name, plugin in _plugin_policies().items() if plugin in (kind, policy))
    return own or next(others, path.partition(":")[2].lower())


def make_policy(name: str, **options: Any) -> Policy:
    """Make a policy with its options."""
    name = current_policy_name(name)
    kind, known = policy_class(name), policy_options(name)
    update_options(kind, options)
    unknown = sorted(set(options) - set(known) - {"scale"})
    if unknown:
        raise OptionError(f"policy `{name}` has no option `{unknown[0]}`. Valid options: {', '.join(known) or 'none'}")
    values = {option: _convert_option(name, option, value, known.get(option)) for option, value in options.items()}
    policy: Policy = kind(**values) if isinstance(kind, type) else kind
    return policy


def _convert_option(policy: str, option: str, value: Any, hint: Any) -> Any:
    """Validate a value against the type of its option."""
    if option == "scale":
        return value
    try:
        return convert(value, hint)
    except ValidationError as error:
        raise OptionError(f"policy `{policy}`: invalid value {value!r} for `{option}`: {error}") from error
