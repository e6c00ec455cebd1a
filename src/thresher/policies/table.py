"""The table of policies: one row each; a module is imported when its policy is first asked for."""

from importlib import import_module
from typing import Any, get_type_hints

from msgspec import ValidationError, convert

from thresher.errors import OptionError
from thresher.policies.base import Policy

POLICIES: dict[str, str] = {
    "thinking": "thresher.policies.thinking:DropThinking",
    "reminders": "thresher.policies.reminders:StripReminders",
    "messages": "thresher.policies.messages:FilterMessages",
    "tools": "thresher.policies.tools:EditToolCalls",
    "subagents": "thresher.policies.subagents:DropSubagents",
    "reads": "thresher.policies.reads:DeduplicateReads",
    "diffs": "thresher.policies.edit_history:SummarizeOldEdits",
    "output": "thresher.policies.output:TruncateOutput",
    "recent": "thresher.policies.latest_only:KeepLatestOnly",
    "superseded": "thresher.policies.superseded:RemoveSuperseded",
    "exchanges": "thresher.policies.exchanges:SummarizeExchanges",
    "batches": "thresher.policies.batch_summary:SummarizeBatches",
    "mask": "thresher.policies.mask:MaskOldResults",
    "fading": "thresher.policies.decay:DecayResults",
    "newest": "thresher.policies.sliding_window:SlidingWindow",
}
"""The name of a policy, and the path of its class."""


def policy_class(name: str) -> type[Any]:
    """The class of a policy."""
    if name not in POLICIES:
        raise OptionError(f"no policy is called `{name}`; there are {', '.join(POLICIES)}")
    module, _, attribute = POLICIES[name].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def policy_name(policy: Policy) -> str:
    """Return the name that a policy has in the table; of any other the name of its function or class."""
    kind = policy if hasattr(policy, "__name__") else type(policy)
    path = f"{kind.__module__}:{getattr(kind, '__name__', 'policy')}"
    return next((name for name, known in POLICIES.items() if known == path), path.partition(":")[2].lower())


def make_policy(name: str, **options: Any) -> Policy:
    """A policy with its options."""
    found = policy_class(name)
    known = [field for field in found.__dataclass_fields__ if field != "scale"]
    unknown = sorted(set(options) - set(known) - {"scale"})
    if unknown:
        raise OptionError(f"policy `{name}` has no option `{unknown[0]}`; its options are {', '.join(known) or 'none'}")
    hints = get_type_hints(found)
    made: Policy = found(
        **{option: _convert_option(name, option, value, hints[option]) for option, value in options.items()}
    )
    return made


def _convert_option(policy: str, option: str, value: Any, hint: Any) -> Any:
    """The value, if it is of the type that the option wants."""
    if option == "scale":
        return value
    try:
        return convert(value, hint)
    except ValidationError as error:
        raise OptionError(f"policy `{policy}`: `{option}` cannot be {value!r}: {error}") from error
