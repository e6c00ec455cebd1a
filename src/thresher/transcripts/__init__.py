"""Read agents' session files: paths in, sessions out, with the problems met while reading.

Each transcript format is one module or folder, with one row in `table` and one fixture. No other package compares
transcript formats by name.
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
