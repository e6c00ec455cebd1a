"""Parse the token counts of a usage object."""

from collections.abc import Mapping
from typing import Any

from thresher.model.message import Usage


def int_field(fields: Mapping[str, Any], name: str) -> int:
    """Return a count, or 0 if it is missing."""
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def usage_with_cached(fields: Mapping[str, Any], given: str, answered: str, details: str) -> Usage | None:
    """Return the usage of an API whose prompt count includes cached tokens, listed under `details`."""
    if given not in fields:
        return None
    inner = fields.get(details)
    read = int_field(inner, "cached_tokens") if isinstance(inner, Mapping) else 0
    read = read or int_field(fields, "cache_read_input_tokens")
    return Usage(int_field(fields, given) - read, int_field(fields, answered), read)
