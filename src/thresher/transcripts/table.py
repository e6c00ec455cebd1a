"""All transcript formats by name. The module of a format is imported on first use.

Another package registers a format as an entry point in the group `thresher.transcripts`. The name of the entry point is
the name of the format. The value of the entry point is the path of a `TranscriptFormat`, like `FORMAT` in the modules
of this package. The legacy group `thresher.formats` also works.
"""

import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Literal, cast

from thresher.dialects.base import Dialect
from thresher.dialects.plugins import load_plugins
from thresher.dialects.table import DIALECTS, dialect_names, find_dialect
from thresher.errors import FormatError
from thresher.transcripts.base import TranscriptFormat

SourceFormat = Dialect | TranscriptFormat

TRANSCRIPT_FORMATS: dict[str, str] = {
    "claude-code": "thresher.transcripts.claude_code.reader",
    "codex": "thresher.transcripts.codex",
    "mini-swe-agent": "thresher.transcripts.mini_swe_agent",
    "pi": "thresher.transcripts.pi",
    "opencode": "thresher.transcripts.opencode.reader",
    "cline": "thresher.transcripts.cline.reader",
    "swe-agent": "thresher.transcripts.swe_agent.reader",
    "openhands": "thresher.transcripts.openhands.reader",
    "atif": "thresher.transcripts.atif.reader",
    "gemini-cli": "thresher.transcripts.gemini_cli.reader",
    "copilot-cli": "thresher.transcripts.copilot_cli.reader",
    "adk": "thresher.transcripts.adk.reader",
    "aider": "thresher.transcripts.aider.reader",
    "goose": "thresher.transcripts.goose.reader",
    "otel": "thresher.transcripts.otel.reader",
    "generic": "thresher.transcripts.generic.reader",
}


@cache
def _plugin_formats() -> dict[str, TranscriptFormat]:
    formats: dict[str, TranscriptFormat] = {}
    for name, value in load_plugins("thresher.transcripts", TRANSCRIPT_FORMATS).items():
        if isinstance(value, TranscriptFormat):
            formats[name] = value
        elif not isinstance(value, Dialect) and name not in DIALECTS:
            warnings.warn(f"ignored the format `{name}`: expected a TranscriptFormat, got {value!r}", stacklevel=2)
    return formats


@cache
def find_format(name: str) -> SourceFormat:
    """Return the transcript format or the dialect with this name."""
    if name in TRANSCRIPT_FORMATS:
        return cast(TranscriptFormat, import_module(TRANSCRIPT_FORMATS[name]).FORMAT)
    if name in _plugin_formats():
        return _plugin_formats()[name]
    if name in dialect_names():
        return find_dialect(name)
    raise FormatError(f"unknown format `{name}`; valid: {', '.join(format_names())}")


def format_names(kind: Literal["wire", "transcript"] | None = None) -> list[str]:
    """Return the names of all dialects (`wire`), of all transcript formats, or of all dialects and then all formats."""
    transcripts = [*TRANSCRIPT_FORMATS, *_plugin_formats()]
    return {"wire": dialect_names(), "transcript": transcripts}.get(kind or "", [*dialect_names(), *transcripts])


def transcript_formats() -> Iterator[TranscriptFormat]:
    """Yield every transcript format. Each one is imported when the caller reaches it, those of other packages last."""
    for name in TRANSCRIPT_FORMATS:
        yield cast(TranscriptFormat, find_format(name))
    yield from _plugin_formats().values()
