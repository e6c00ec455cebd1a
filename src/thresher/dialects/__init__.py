"""API message formats: parse messages to histories, and emit histories as messages.

Messages and request bodies that are parsed and emitted in the same dialect do not change. Each dialect has a folder, a
row in `table`, and a test fixture. This package imports only `model` and `errors`.
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
