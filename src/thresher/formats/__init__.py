"""How conversations are written down: files and messages in, histories out, and back again.

In: paths, or messages as an API takes them. Out: sessions and histories. One file a format, one row in `table`,
one fixture. Imports `model` and `errors` only; no other package knows a format by name.
"""

from thresher.formats.discovery import Found, discover, files_below
from thresher.formats.reading import emission, emit, listed, parse, read, read_all, sniff
from thresher.formats.source import Limits
from thresher.formats.table import Format, find_format, format_names
from thresher.formats.transcript import Holds, Home, TranscriptFormat
from thresher.formats.wire import Emission, WireFormat

__all__ = [
    "Emission",
    "Format",
    "Found",
    "Holds",
    "Home",
    "Limits",
    "TranscriptFormat",
    "WireFormat",
    "discover",
    "emission",
    "emit",
    "files_below",
    "find_format",
    "format_names",
    "listed",
    "parse",
    "read",
    "read_all",
    "sniff",
]
