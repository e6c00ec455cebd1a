"""The table of policies: one row each; a module is imported when its policy is first asked for."""

from importlib import import_module
from typing import Any, get_type_hints

from msgspec import ValidationError, convert

from thresher.errors import OptionError
from thresher.policies.base import Policy

POLICIES: dict[str, str] = {
    "thinking": "Thinking",
    "reminders": "Reminders",
    "messages": "Messages",
    "tools": "Tools",
    "subagents": "Subagents",
    "reads": "Reads",
    "diffs": "Diffs",
    "output": "Output",
    "recent": "Recent",
    "superseded": "Superseded",
    "exchanges": "Exchanges",
    "batches": "Batches",
    "mask": "Mask",
    "fading": "Fading",
    "newest": "Newest",
}
"""Name (and module) of a policy, and its class there."""


def policy_class(name: str) -> type[Any]:
    """The class of a policy."""
    if name not in POLICIES:
        raise OptionError(f"no policy is called `{name}`; there are {', '.join(POLICIES)}")
    found: type[Any] = getattr(import_module(f"thresher.policies.{name}"), POLICIES[name])
    return found


def make_policy(name: str, **options: Any) -> Policy:
    """A policy with its options."""
    found = policy_class(name)
    known = [field for field in found.__dataclass_fields__ if field != "scale"]
    unknown = sorted(set(options) - set(known) - {"scale"})
    if unknown:
        raise OptionError(f"policy `{name}` has no option `{unknown[0]}`; its options are {', '.join(known) or 'none'}")
    hints = get_type_hints(found)
    made: Policy = found(**{option: _fitting(name, option, value, hints[option]) for option, value in options.items()})
    return made


def _fitting(policy: str, option: str, value: Any, hint: Any) -> Any:
    """The value, if it is of the type that the option wants."""
    if option == "scale":
        return value
    try:
        return convert(value, hint)
    except ValidationError as error:
        raise OptionError(f"policy `{policy}`: `{option}` cannot be {value!r}: {error}") from error
