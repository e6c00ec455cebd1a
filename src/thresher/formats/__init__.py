"""Deprecated: `thresher.dialects` has the message formats of APIs, `thresher.transcripts` the files of agents."""

from thresher.deprecation import ForwardedNames

_DIALECTS = {
    "Emission": "Emission",
    "WireFormat": "Dialect",
    "emission": "emit_with_losses",
    "emit": "emit",
    "parse": "parse",
}
_TRANSCRIPTS = {
    "Format": "SourceFormat",
    "Found": "DiscoveredFile",
    "Holds": "Capability",
    "Home": "SessionFolder",
    "Limits": "ReadLimits",
    "TranscriptFormat": "TranscriptFormat",
    "discover": "discover",
    "files_below": "files_below",
    "find_format": "find_format",
    "format_names": "format_names",
    "listed": "list_session_versions",
    "read": "read",
    "read_all": "read_all",
    "sniff": "sniff",
}

__getattr__ = ForwardedNames(
    __name__,
    {old: f"thresher.dialects:{new}" for old, new in _DIALECTS.items()}
    | {old: f"thresher.transcripts:{new}" for old, new in _TRANSCRIPTS.items()},
)
