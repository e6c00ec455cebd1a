"""opencode: the output of `opencode export` and opencode's two session stores.

An export is one JSON document per session. Each sub-agent has a separate document. The line of a source location is the
message's number.
"""

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thresher.errors import ReadError
from thresher.model import Session
from thresher.transcripts.base import SessionFolder, TranscriptFormat
from thresher.transcripts.coerce import dict_at, text_at
from thresher.transcripts.opencode.messages import NAME, build_opencode_session
from thresher.transcripts.source import SourceFile


def _read(source: SourceFile) -> list[Session]:
    """Read the session in a file, or all sessions in a database."""
    from thresher.transcripts.opencode import store  # noqa: PLC0415 - imports SQLite

    if source.is_database:
        return store.read_opencode_database(source)
    document = source.read_document()
    if _is_session_info(document):
        return [store.read_opencode_folders(source, document)]
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise ReadError(f"`{source.path}` has no list of `messages`: is it an `opencode export`?")
    return [build_opencode_session(source, document)]


def _list_sessions(source: SourceFile) -> Mapping[str, str]:
    """Map each session id in a database to a version mark that changes with the session. Other files have none."""
    from thresher.transcripts.opencode import store  # noqa: PLC0415 - imports SQLite

    return store.list_opencode_sessions(source) if source.is_database else {}


def _sniff(source: SourceFile) -> int:
    """Match a document with session info and messages, a session's info file, or a database with opencode's tables."""
    if source.is_database:
        from thresher.transcripts.opencode import store  # noqa: PLC0415 - imports SQLite

        return 3 if store.is_opencode_database(source) else 0
    document = source.document
    if _is_session_info(document):
        return 3
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        return 0
    if not isinstance(document.get("info"), dict):
        return 0
    has_id = text_at(document["info"], "id").startswith("ses_")
    rows = [row for row in document["messages"] if isinstance(row, dict)]
    has_messages = any(isinstance(row.get("parts"), list) and "role" in dict_at(row, "info") for row in rows)
    return 3 if has_id and (has_messages or not rows) else 2 if has_messages else 0


def _is_session_info(document: Any) -> bool:
    """Return True for the info of a session whose messages are in separate files."""
    has_fields = text_at(document, "id").startswith("ses_") and isinstance(document.get("time"), dict)
    return has_fields and "messages" not in document


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the session folders in `XDG_DATA_HOME` or `~/.local/share`, and the folder of `OPENCODE_DB`."""
    own = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    named = own / environment.get("OPENCODE_DB", "")
    return [
        *([SessionFolder(named.parent, glob.escape(named.name))] if environment.get("OPENCODE_DB") else []),
        SessionFolder(own, "opencode*.db"),
        # The first version with a database imported all session files and kept them.
        SessionFolder(own / "storage" / "session", "*/ses_*.json", newer="../../../opencode.db"),
        SessionFolder(own / "project", "*/storage/session/info/ses_*.json", newer="../../../../../opencode.db"),
    ]


FORMAT = TranscriptFormat(
    NAME,
    "opencode",
    _sniff,
    _read,
    _homes,
    resume="opencode --session {id}",
    layouts="`opencode export`; the store of JSON files; the SQLite store, of both generations",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="1.2.20 to 1.2.26, 1.18.33",
    listed=_list_sessions,
)
