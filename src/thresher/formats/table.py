"""Every format by name. A row is an import path, resolved when it is asked for.

A third-party package adds its own through the entry point group `thresher.formats`: the name, and the path of an
object like the `FORMAT` of any module here.
"""

from functools import cache
from importlib import import_module
from typing import Literal

from thresher.errors import FormatError
from thresher.formats.transcript import TranscriptFormat
from thresher.formats.wire import WireFormat

Format = WireFormat | TranscriptFormat

FORMATS: dict[str, tuple[Literal["wire", "transcript"], str]] = {
    "anthropic": ("wire", "thresher.formats.anthropic"),
    "openai-chat": ("wire", "thresher.formats.openai_chat"),
    "openai-responses": ("wire", "thresher.formats.openai_responses"),
    "gemini": ("wire", "thresher.formats.gemini"),
    "claude-code": ("transcript", "thresher.formats.claude_code"),
    "codex": ("transcript", "thresher.formats.codex"),
    "mini-swe-agent": ("transcript", "thresher.formats.mini_swe_agent"),
    "pi": ("transcript", "thresher.formats.pi"),
    "opencode": ("transcript", "thresher.formats.opencode"),
    "cline": ("transcript", "thresher.formats.cline"),
    "swe-agent": ("transcript", "thresher.formats.swe_agent"),
    "openhands": ("transcript", "thresher.formats.openhands"),
    "atif": ("transcript", "thresher.formats.atif"),
    "gemini-cli": ("transcript", "thresher.formats.gemini_cli"),
    "copilot-cli": ("transcript", "thresher.formats.copilot_cli"),
    "adk": ("transcript", "thresher.formats.adk"),
    "aider": ("transcript", "thresher.formats.aider"),
    "goose": ("transcript", "thresher.formats.goose"),
    "otel": ("transcript", "thresher.formats.otel"),
    "generic": ("transcript", "thresher.formats.generic"),
}


@cache
def _others() -> dict[str, Format]:
    """What other packages bring; one that cannot be loaded is told, and does not stop the rest."""
    import warnings  # noqa: PLC0415
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes longer to import than all of this package

    found: dict[str, Format] = {}
    for entry in entry_points(group="thresher.formats"):
        try:
            format = entry.load()
        except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything
            warnings.warn(f"the format `{entry.name}` ({entry.value}) cannot be loaded: {error!r}", stacklevel=2)
            continue
        if not isinstance(format, WireFormat | TranscriptFormat) or entry.name in FORMATS:
            what = "is called like one of Thresher's own" if entry.name in FORMATS else "is no format"
            warnings.warn(f"the format `{entry.name}` ({entry.value}) {what}; it is left out", stacklevel=2)
            continue
        found[entry.name] = format
    return found


@cache
def find_format(name: str) -> Format:
    """The format of that name."""
    if name in FORMATS:
        found: Format = import_module(FORMATS[name][1]).FORMAT
        return found
    if name in _others():
        return _others()[name]
    raise FormatError(f"no format is called `{name}`; known are {', '.join(format_names())}")


def format_names(kind: Literal["wire", "transcript"] | None = None) -> list[str]:
    """All names, or those of one kind."""
    own = [name for name, (of_kind, _) in FORMATS.items() if kind in (None, of_kind)]
    return own + [name for name, found in _others().items() if kind in (None, found.kind)]


def wire_formats() -> list[WireFormat]:
    """Every wire format."""
    found = (find_format(name) for name in format_names("wire"))
    return [one for one in found if isinstance(one, WireFormat)]


def transcript_formats() -> list[TranscriptFormat]:
    """Every transcript format."""
    found = (find_format(name) for name in format_names("transcript"))
    return [one for one in found if isinstance(one, TranscriptFormat)]
