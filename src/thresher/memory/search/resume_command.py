"""The command that resumes a session in its agent.

People paste it into a shell, and its values come from a transcript. So the values are checked before they are quoted,
and nothing changes the command afterward.
"""

import os
import shlex
from collections.abc import Callable

from thresher.errors import FormatError
from thresher.memory.records import ArchivedSession
from thresher.transcripts import TranscriptFormat, find_format

WINDOWS_SPECIAL = frozenset("\"%!^&|<>()$`';,")
"""Characters that a Windows shell may interpret, even in quotes."""


def build_resume_command(
    facts: ArchivedSession, clean: Callable[[str], str] = str, *, windows: bool = os.name == "nt"
) -> str:
    """Return the command; empty if the agent has none, the file is gone, or a value cannot be quoted safely."""
    try:
        format = find_format(facts.agent)
    except FormatError:  # its package was removed
        return ""
    template = format.resume if isinstance(format, TranscriptFormat) else ""
    values = (facts.id, facts.file, facts.project)
    if not template or facts.gone or facts.subagent or any(clean(value) != value for value in values):
        return ""
    if not all(_is_safe_argument(value, windows=windows) for value in values):
        return ""
    quote = _quote_for_windows if windows else shlex.quote
    command = template.format(id=quote(facts.id), file=quote(facts.file))
    return f"cd {quote(facts.project)} && {command}" if facts.project else command


def _is_safe_argument(value: str, *, windows: bool) -> bool:
    """Return True if a terminal shows the complete value, and a shell can take it as one plain argument."""
    return value.isprintable() and not value.startswith("-") and not (windows and WINDOWS_SPECIAL & set(value))


def _quote_for_windows(value: str) -> str:
    return f'"{value}"' if " " in value else value
