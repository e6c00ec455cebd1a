"""Read the session files of agents. Each session lists the problems found in its file.

Each transcript format has one module or folder here, one entry in `table` and one fixture. Code outside this package
does not depend on the name of a transcript format.
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
