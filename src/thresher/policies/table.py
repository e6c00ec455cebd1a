"""The table of policies: one row each; a module is imported when its policy is first asked for.

A third-party package adds its own through the entry point group `thresher.policies`: the name, and the path of a frozen
dataclass whose fields are its options, or of any callable that takes a history and yields edits.
"""

import warnings
from functools import cache
from importlib import import_module
from typing import Any, get_type_hints

from msgspec import ValidationError, convert

from thresher.deprecation import rename_value, update_options
from thresher.dialects.plugins import POLICY_GROUP, load_plugins
from thresher.errors import OptionError
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
"""The name of each policy, and the path of its class."""
RENAMED_POLICIES = {
    "fading": "decay",
    "newest": "sliding-window",
    "recent": "latest-only",
    "diffs": "edit-history",
    "batches": "batch-summary",
    "development": "none",
}
"""Policies and presets by the names that earlier versions gave them."""


@cache
def _plugin_policies() -> dict[str, Any]:
    plugins = load_plugins(POLICY_GROUP, {*POLICIES, *RENAMED_POLICIES})
    for name in [name for name, found in plugins.items() if not callable(found)]:
        warnings.warn(f"the policy `{name}` ({plugins.pop(name)!r}) is not callable; it is ignored", stacklevel=2)
    return plugins


def policy_names() -> list[str]:
    """Return all names, Thresher's own first."""
    return [*POLICIES, *_plugin_policies()]


def current_policy_name(name: str) -> str:
    """Return the current name of a policy or preset; an old name gives a warning."""
    return rename_value("thresher", "policy", name, RENAMED_POLICIES)


def is_policy(name: str) -> bool:
    """Whether a policy has that name; looks for other packages' policies only where it is none of Thresher's own."""
    return name in POLICIES or name in _plugin_policies()


def policy_class(name: str) -> Any:
    """Return the class of a policy; a third-party policy may be any callable."""
    name = current_policy_name(name)
    if name in POLICIES:
        module, _, attribute = POLICIES[name].partition(":")
        return getattr(import_module(module), attribute)
    if name in _plugin_policies():
        return _plugin_policies()[name]
    raise OptionError(f"no policy is called `{name}`; there are {', '.join(policy_names())}")


def policy_options(name: str) -> dict[str, Any]:
    """Return the options of a policy, each with its type."""
    found = policy_class(name)
    hints = get_type_hints(found) if isinstance(found, type) else {}
    return {field: hints[field] for field in getattr(found, "__dataclass_fields__", {}) if field != "scale"}


def policy_name(policy: Policy) -> str:
    """Return the name that a policy has in the table; of any other the name of its function or class."""
    kind = policy if hasattr(policy, "__name__") else type(policy)
    path = f"{kind.__module__}:{getattr(kind, '__name__', 'policy')}"
    own = next((name for name, known in POLICIES.items() if known == path), None)
    others = (name for name, found in _plugin_policies().items() if found in (kind, policy))
    return own or next(others, path.partition(":")[2].lower())


def make_policy(name: str, **options: Any) -> Policy:
    """Make a policy with its options."""
    name = current_policy_name(name)
    found, known = policy_class(name), policy_options(name)
    update_options(found, options)
    unknown = sorted(set(options) - set(known) - {"scale"})
    if unknown:
        raise OptionError(f"policy `{name}` has no option `{unknown[0]}`; its options are {', '.join(known) or 'none'}")
    values = {option: _convert_option(name, option, value, known.get(option)) for option, value in options.items()}
    made: Policy = found(**values) if isinstance(found, type) else found
    return made


def _convert_option(policy: str, option: str, value: Any, hint: Any) -> Any:
    """The value, if it is of the type that the option wants."""
    if option == "scale":
        return value
    try:
        return convert(value, hint)
    except ValidationError as error:
        raise OptionError(f"policy `{policy}`: `{option}` cannot be {value!r}: {error}") from error
