"""goose: JSONL files up to 1.9, then a database of all sessions; exports of one; and recordings of a provider.

The first line of a JSONL file has the facts of the session, the others a message each. An export is one document with
both, and so has no lines: a message's place is its number in it, in the database the number of its row.
"""

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from thresher.model import Session
from thresher.transcripts.base import SessionFolder, TranscriptFormat
from thresher.transcripts.coerce import first_text, list_at, text_at, value_at
from thresher.transcripts.goose.messages import NAME, GooseFacts, GooseMessage, build_goose_session
from thresher.transcripts.goose.recordings import is_goose_recording, read_goose_recording
from thresher.transcripts.source import SourceFile

DATABASE = "sessions.db"
_LINE_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _read(source: SourceFile) -> list[Session]:
    """The session in a file, or all of a database."""
    if source.is_database:
        # The database comes with a library of its own.
        from thresher.transcripts.goose import store  # noqa: PLC0415

        return store.read_goose_database(source)
    document = source.read_document()
    if _exported_messages(document) is not None:
        return [_read_export(source, document)]
    if isinstance(document, dict) and "working_dir" not in document and not _is_goose_message(document):
        return read_goose_recording(source, document)
    return [_read_lines(source)]


def _exported_messages(document: Any) -> list[Any] | None:
    """The messages of an export, if a document is one."""
    if not isinstance(document, dict) or "working_dir" not in document:
        return None
    said = document.get("conversation", document.get("messages"))
    said = value_at(said, "messages") if isinstance(said, dict) else said
    return said if isinstance(said, list) else None


def _read_export(source: SourceFile, document: dict[str, Any]) -> Session:
    entries = []
    for number, wire in enumerate(_exported_messages(document) or [], 1):
        if isinstance(wire, dict):
            entries.append(GooseMessage(number, wire))
        else:
            source.report("a message is no object", "skipped", number)
    return build_goose_session(source, _parse_session_info(source, document), entries)


def _parse_session_info(source: SourceFile, told: dict[str, Any]) -> GooseFacts:
    return GooseFacts(
        text_at(told, "id") or source.stem,
        title=first_text(told, "name", "description"),
        project=text_at(told, "working_dir"),
        model=text_at(told, "model_config", "model_name"),
        is_subagent=told.get("session_type") == "sub_agent",
        parent=text_at(told, "parent_session_id"),
        started=told.get("created_at"),
        ended=told.get("updated_at"),
    )


def _read_lines(source: SourceFile) -> Session:
    facts: dict[str, Any] = {}
    entries: list[GooseMessage] = []
    for line, _, row in source.records(_LINE_DECODER):
        if isinstance(row, dict) and "role" not in row and not entries and not facts:
            facts = row
        elif isinstance(row, dict):
            entries.append(GooseMessage(line, row))
        else:
            source.report("a line is no message", "skipped", line)
    return build_goose_session(source, _parse_session_info(source, facts), entries)


def _list_sessions(source: SourceFile) -> Mapping[str, str]:
    """The sessions of a database."""
    from thresher.transcripts.goose import store  # noqa: PLC0415

    return store.list_goose_sessions(source) if source.is_database else {}


def _sniff(source: SourceFile) -> int:
    """Facts before the messages of a file, an export, a recording; or a database with goose's tables."""
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
    said = _exported_messages(document)
    is_ours = said is not None and {"extension_data", "message_count", "description"} & document.keys()
    return 3 if is_ours and all(map(_is_goose_message, said or [])) else 0


def _is_goose_message(value: Any) -> bool:
    """Whether a value is a message as goose writes it: its time is a number, its content a list of typed parts."""
    content = value_at(value, "content")
    typed = isinstance(content, list) and all(isinstance(value_at(part, "type"), str) for part in content)
    return typed and value_at(value, "role") in ("user", "assistant") and type(value_at(value, "created")) is int


def _sniff_database(source: SourceFile) -> int:
    from thresher.transcripts.goose import store  # noqa: PLC0415

    if store.is_goose_database(source):
        return 3
    # By its name it is goose's: reading it will say what is wrong with it.
    return 1 if source.path.name == DATABASE and not source.tables else 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """`GOOSE_PATH_ROOT`, else the user's data folder; on a Mac also where the desktop had it."""
    root = Path(environment.get("GOOSE_PATH_ROOT") or "")
    if root.is_absolute():
        folders = [root / "data"]
    elif sys.platform == "win32":
        roaming = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
        folders = [roaming / "Block" / "goose" / "data"]
    else:
        folders = [Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "goose"]
        if sys.platform == "darwin":
            own = home / "Library" / "Application Support" / "Block" / "goose"
            folders += [own / "data", own]
    # The first version with a database took all files over, and left them where they were.
    ways = ((DATABASE, ""), ("*.jsonl", DATABASE))
    return [SessionFolder(folder / "sessions", name, newer=newer) for folder in folders for name, newer in ways]


FORMAT = TranscriptFormat(
    NAME,
    "goose",
    _sniff,
    _read,
    _homes,
    resume="goose session --resume --session-id {id}",
    layouts="the SQLite store; session files (JSONL); `goose session export --format json`; provider recordings",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "compactions"),
    seen="recordings of October 2025 to February 2026; the store by its tables, versions 1 to 17",
    listed=_list_sessions,
)
