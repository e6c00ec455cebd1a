"""mini-swe-agent: one JSON document a run, OpenAI chat messages inside with the harness's notes under `extra`.

A document has no lines: a message's place is its number in the run.
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
from thresher.transcripts.coerce import text_at, value_at
from thresher.transcripts.source import SourceFile

NAME = "mini-swe-agent"


def _read(source: SourceFile) -> list[Session]:
    """One run."""
    document = source.read_document()
    rows = document.get("messages") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ReadError(f"`{source.path}` holds no list of `messages`; is it a mini-swe-agent trajectory?")
    messages = [_parse_row(row, source.at(number)) for number, row in enumerate(rows, 1)]
    info = document["info"] if isinstance(document.get("info"), dict) else {}
    return [
        make_session(
            NAME,
            source,
            text_at(document, "instance_id") or source.stem,
            (History(tuple(messages)),),
            records=Counter(str(row.get("role")) if isinstance(row, dict) else "?" for row in rows),
            project=text_at(info, "config", "environment", "cwd"),
            title=text_at(document, "instance_id"),
            version=text_at(info, "mini_version"),
        )
    ]


def _parse_row(row: Any, source: SourceLocation) -> Message:
    message = parse_openai_chat_message(row)
    extra = row.get("extra") if isinstance(row, dict) else None
    extra = extra if isinstance(extra, dict) else {}
    parts = message.parts
    if _is_failed(extra):
        parts = tuple(replace(p, is_error=True) if isinstance(p, ToolResult) else p for p in parts)
    return replace(
        message,
        parts=parts,
        id=f"{source.line}",
        time=parse_time(extra.get("timestamp")),
        model=text_at(extra, "response", "model"),
        usage=parse_openai_chat_usage(value_at(extra, "response", "usage")),
        source=source,
    )


def _is_failed(extra: dict[str, Any]) -> bool:
    return extra.get("returncode") not in (0, None) or bool(extra.get("exception_type"))


def _sniff(source: SourceFile) -> int:
    """A document that says so itself, or has this harness's version in its notes."""
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        return 0
    said = text_at(document, "trajectory_format").startswith("mini-swe-agent")
    return 3 if said or value_at(document, "info", "mini_version") else 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """The harness's own folder, where the last run is kept; other runs stand where their user put them."""
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
