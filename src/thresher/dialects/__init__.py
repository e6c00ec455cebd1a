"""API message formats: messages in, histories out, and back.

In: messages or request bodies as an API takes them. Out: histories, and the same messages again. One folder a
dialect, one row in `table`, one fixture. Imports `model` and `errors` only.
"""

from thresher.dialects.base import Dialect, Emission
from thresher.dialects.convert import emit, emit_with_losses, parse
from thresher.dialects.intake import detect_dialect
from thresher.dialects.table import dialect_names, find_dialect

__all__ = [
    "Dialect",
    "Emission",
    "detect_dialect",
    "dialect_names",
    "emit",
    "emit_with_losses",
    "find_dialect",
    "parse",
]
