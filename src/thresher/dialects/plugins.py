"""Load objects that other packages register as entry points."""

import warnings
from collections.abc import Container
from functools import cache
from typing import Any

LEGACY_GROUP = "thresher.formats"
"""Entry-point group that dialects and transcript formats shared before they got groups of their own."""

POLICY_GROUP = "thresher.policies"


@cache
def _load_group(group: str) -> dict[str, Any]:
    """Load the entry points of a group; warn about an entry that fails, and load the others."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes longer to import than this whole package

    found: dict[str, Any] = {}
    for entry in entry_points(group=group):
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001 - third-party code may raise anything
            kind = "policy" if group == POLICY_GROUP else "format"
            warnings.warn(f"the {kind} `{entry.name}` ({entry.value}) cannot be loaded: {error!r}", stacklevel=2)
    return found


def load_plugins(group: str, taken: Container[str]) -> dict[str, Any]:
    """Return the objects of a group by name, without those in `taken`. Formats may also be in the legacy group."""
    legacy = {} if group == POLICY_GROUP else _load_group(LEGACY_GROUP)
    found = {**legacy, **_load_group(group)}
    for name in [name for name in found if name in taken]:
        kind = "policy" if group == POLICY_GROUP else "format"
        warnings.warn(f"the {kind} `{name}` has the name of a built-in {kind} and is ignored", stacklevel=2)
        del found[name]
    return found
