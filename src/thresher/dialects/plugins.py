"""Objects that other packages register by entry point."""

import warnings
from collections.abc import Container
from functools import cache
from typing import Any

LEGACY_GROUP = "thresher.formats"
"""Held dialects and transcript formats before each had a group of its own."""

POLICY_GROUP = "thresher.policies"


@cache
def _load_group(group: str) -> dict[str, Any]:
    """Load a group; one entry that cannot be loaded is reported and does not stop the rest."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes longer to import than all of this package

    found: dict[str, Any] = {}
    for entry in entry_points(group=group):
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001 - another package's module may raise anything
            kind = "policy" if group == POLICY_GROUP else "format"
            warnings.warn(f"the {kind} `{entry.name}` ({entry.value}) cannot be loaded: {error!r}", stacklevel=2)
    return found


def load_plugins(group: str, taken: Container[str]) -> dict[str, Any]:
    """Return the objects of a group by name, of formats also the legacy group's; a name that is taken is reported."""
    legacy = {} if group == POLICY_GROUP else _load_group(LEGACY_GROUP)
    found = {**legacy, **_load_group(group)}
    for name in [name for name in found if name in taken]:
        kind = "policy" if group == POLICY_GROUP else "format"
        warnings.warn(f"the {kind} `{name}` is called like one of Thresher's own; it is left out", stacklevel=2)
        del found[name]
    return found
