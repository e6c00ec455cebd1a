"""mini-swe-agent: one JSON document per run, with OpenAI chat messages and the harness's metadata under `extra`.

A document has no lines, so the source line of a message is the number of the message in the run.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from thresher.dialects.openai_chat.codec import parse_openai_chat_message
from thresher.errors import ReadError
from thresher.model import History, Message, Session, SourceLocation, ToolResult
from thresher.transcripts.base import SessionFolder, TranscriptFormat, make_session, parse_openai_chat_usage, parse_time
from thresher.transcripts.coerce import dict_at, text_at, value_at
from thresher.transcripts.source import SourceFile

NAME = "mini-swe-agent"


def _read(source: SourceFile) -> list[Session]:
    """Read one run."""
    document = source.read_document()
    rows = document.get("messages") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ReadError(f"`{source.path}` contains no list of `messages`: is it a mini-swe-agent trajectory?")
    messages = [_parse_row(row, source.at(number)) for number, row in enumerate(rows, 1)]
    return [
        make_session(
            NAME,
            source,
            text_at(document, "instance_id") or source.stem,
            (History(tuple(messages)),),
            records=Counter(str(row.get("role")) if isinstance(row, dict) else "?" for row in rows),
            project=text_at(document, "info", "config", "environment", "cwd"),
            title=text_at(document, "instance_id"),
            version=text_at(document, "info", "mini_version"),
        )
    ]


def _parse_row(row: Any, source: SourceLocation) -> Message:
    message = parse_openai_chat_message(row)
    extra = dict_at(row, "extra")
    parts = message.parts
    if extra.get("returncode") not in (0, None) or extra.get("exception_type"):
        parts = tuple(replace(part, is_error=True) if isinstance(part, ToolResult) else part for part in parts)
    return replace(
        message,
        parts=parts,
        id=f"{source.line}",
        time=parse_time(extra.get("timestamp")),
        model=text_at(extra, "response", "model"),
        usage=parse_openai_chat_usage(value_at(extra, "response", "usage")),
        source=source,
    )


def _sniff(source: SourceFile) -> int:
    """Match a document that names this format, or has this harness's version in its metadata."""
    document = source.document
    if not isinstance(value_at(document, "messages"), list):
        return 0
    is_named = text_at(document, "trajectory_format").startswith("mini-swe-agent")
    return 3 if is_named or value_at(document, "info", "mini_version") else 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the harness's configuration folder, which holds the last run. Users choose the location of other runs."""
    if folder := environment.get("MSWEA_GLOBAL_CONFIG_DIR"):
        root = Path(folder)
    elif sys.platform == "darwin":
        root = home / "Library" / "Application Support" / "mini-swe-agent"
    elif sys.platform == "win32":
        root = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "mini-swe-agent" / "mini-swe-agent"
    else:
        root = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "mini-swe-agent"
    return [SessionFolder(root, "*.traj.json")]


FORMAT = TranscriptFormat(
    NAME,
    "mini-swe-agent",
    _sniff,
    _read,
    _homes,
    layouts="`.traj.json`, OpenAI chat inside",
    holds=("thinking", "usage", "times"),
    seen="1 and 2",
)
