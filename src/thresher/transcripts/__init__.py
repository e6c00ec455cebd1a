"""Agents' sessions on disk: files in, sessions out.

In: paths. Out: sessions, and the problems met while reading. One module or folder a transcript format, one row in
`table`, one fixture. Imports `dialects`, `model` and `errors` only; no other package knows a format by name.
"""

from thresher.transcripts.base import Capability, SessionFolder, TranscriptFormat
from thresher.transcripts.discovery import DiscoveredFile, discover, files_below
from thresher.transcripts.reading import list_session_versions, read, read_all, sniff
from thresher.transcripts.source import ReadLimits
from thresher.transcripts.table import SourceFormat, find_format, format_names

__all__ = [
    "Capability",
    "DiscoveredFile",
    "ReadLimits",
    "SessionFolder",
    "SourceFormat",
    "TranscriptFormat",
    "discover",
    "files_below",
    "find_format",
    "format_names",
    "list_session_versions",
    "read",
    "read_all",
    "sniff",
]
