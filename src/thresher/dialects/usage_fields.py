"""Parse the token counts of a usage object."""

from collections.abc import Mapping
from typing import Any

from thresher.model.message import Usage


def int_field(fields: Mapping[str, Any], name: str) -> int:
    """Return a count, or 0 if it is missing."""
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def usage_with_cached(
    fields: Mapping[str, Any], input_field: str, output_field: str, details_field: str
) -> Usage | None:
    """Return the usage of an API whose input count includes cached tokens, which it lists in `details_field`."""
    if input_field not in fields:
        return None
    details = fields.get(details_field)
    cached_tokens = int_field(details, "cached_tokens") if isinstance(details, Mapping) else 0
    cached_tokens = cached_tokens or int_field(fields, "cache_read_input_tokens")
    return Usage(int_field(fields, input_field) - cached_tokens, int_field(fields, output_field), cached_tokens)
