"""goose: a database of all sessions, JSONL files (until 1.9), exports of single sessions, and provider recordings.

In a JSONL file, the first line contains the facts of the session, and every other line is a message. An export is one
document with the facts and the messages. The line of a source location is the message's number in an export and its row
id in the database.
"""

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from thresher.model import Session
from thresher.transcripts.base import SessionFolder, TranscriptFormat
from thresher.transcripts.coerce import list_at, text_at, value_at
from thresher.transcripts.goose.messages import NAME, GooseMessage, build_goose_session, parse_goose_facts
from thresher.transcripts.goose.recordings import is_goose_recording, read_goose_recording
from thresher.transcripts.source import SourceFile

DATABASE = "sessions.db"
_LINE_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _read(source: SourceFile) -> list[Session]:
    """Read the sessions in a file or a database."""
    if source.is_database:
        from thresher.transcripts.goose import store  # noqa: PLC0415 - imports SQLite

        return store.read_goose_database(source)
    document = source.read_document()
    if _exported_messages(document) is not None:
        return [_read_export(source, document)]
    if isinstance(document, dict) and "working_dir" not in document and not _is_goose_message(document):
        return read_goose_recording(source, document)
    return [_read_lines(source)]


def _exported_messages(document: Any) -> list[Any] | None:
    """Return the messages of an export, or None for any other document."""
    if not isinstance(document, dict) or "working_dir" not in document:
        return None
    messages = document.get("conversation", document.get("messages"))
    messages = value_at(messages, "messages") if isinstance(messages, dict) else messages
    return messages if isinstance(messages, list) else None


def _read_export(source: SourceFile, document: dict[str, Any]) -> Session:
    entries = []
    for number, wire in enumerate(_exported_messages(document) or [], 1):
        if isinstance(wire, dict):
            entries.append(GooseMessage(number, wire))
        else:
            source.report("a message is not a JSON object", "skipped", number)
    return build_goose_session(source, parse_goose_facts(document, source.stem), entries)


def _read_lines(source: SourceFile) -> Session:
    facts: dict[str, Any] = {}
    entries: list[GooseMessage] = []
    for line, _, row in source.records(_LINE_DECODER):
        if isinstance(row, dict) and "role" not in row and not entries and not facts:
            facts = row
        elif isinstance(row, dict):
            entries.append(GooseMessage(line, row))
        else:
            source.report("a line is not a message", "skipped", line)
    return build_goose_session(source, parse_goose_facts(facts, source.stem), entries)


def _list_sessions(source: SourceFile) -> Mapping[str, str]:
    """Map each session id in a database to a version mark that changes with the session. Other files have none."""
    from thresher.transcripts.goose import store  # noqa: PLC0415 - imports SQLite

    return store.list_goose_sessions(source) if source.is_database else {}


def _sniff(source: SourceFile) -> int:
    """Match a file that starts with session facts, an export, a recording or a database with goose's tables."""
    if source.is_database:
        return _sniff_database(source)
    first, second, *_ = [*islice(source.head, 2), None, None]
    if isinstance(first, dict) and "working_dir" in first and _is_goose_message(second):
        return 3 if {"description", "message_count", "name"} & first.keys() else 2
    if second is None and isinstance(first, dict) and first.keys() >= {"working_dir", "description", "message_count"}:
        return 3 if _exported_messages(first) is not None else 2
    types = {text_at(part, "type") for part in list_at(first, "content")}
    if _is_goose_message(first) and types & {"toolRequest", "toolResponse"}:
        return 2
    document = source.document
    if is_goose_recording(document):
        return 3
    messages = _exported_messages(document)
    has_fields = messages is not None and {"extension_data", "message_count", "description"} & document.keys()
    return 3 if has_fields and all(map(_is_goose_message, messages or [])) else 0


def _is_goose_message(value: Any) -> bool:
    """Return True for a message in goose's schema: a role, an integer time and a list of typed parts."""
    content = value_at(value, "content")
    typed = isinstance(content, list) and all(isinstance(value_at(part, "type"), str) for part in content)
    return typed and value_at(value, "role") in ("user", "assistant") and type(value_at(value, "created")) is int


def _owns_line(row: Any) -> bool:
    return _is_goose_message(row) or (isinstance(row, dict) and "working_dir" in row)


def _sniff_database(source: SourceFile) -> int:
    from thresher.transcripts.goose import store  # noqa: PLC0415 - imports SQLite

    if store.is_goose_database(source):
        return 3
    # If the tables cannot be read, goose's file name is enough for a match: the reader then reports the cause.
    return 1 if source.path.name == DATABASE and not source.tables else 0


def find_goose_homes(environment: Mapping[str, str], home: Path, platform: str = "") -> list[SessionFolder]:
    """Return the session folders in `GOOSE_PATH_ROOT` or, if it is not set, in the user's data folders."""
    root = Path(environment.get("GOOSE_PATH_ROOT") or "")
    if root.is_absolute():
        folders = [root / "data"]
    elif (platform or sys.platform) == "win32":
        roaming = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
        folders = [roaming / "Block" / "goose" / "data"]
    else:
        folders = [Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "goose"]
        if (platform or sys.platform) == "darwin":
            desktop = home / "Library" / "Application Support" / "Block" / "goose"
            folders += [desktop / "data", desktop]
    # The first version with a database imported all session files and kept them.
    patterns = ((DATABASE, ""), ("*.jsonl", DATABASE))
    return [SessionFolder(folder / "sessions", name, newer=newer) for folder in folders for name, newer in patterns]


FORMAT = TranscriptFormat(
    NAME,
    "goose",
    _sniff,
    _read,
    find_goose_homes,
    resume="goose session --resume --session-id {id}",
    layouts="the SQLite store; session files (JSONL); `goose session export --format json`; provider recordings",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "compactions"),
    seen="recordings of October 2025 to February 2026; the store by its tables, versions 1 to 17",
    listed=_list_sessions,
    owns_line=_owns_line,
)
