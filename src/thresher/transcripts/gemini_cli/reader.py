"""Gemini CLI: a log of changes to a list of messages, one change per line. Older sessions are one JSON document.

A line with the id of an earlier message replaces that message. `$rewindTo` removes a message and all messages after it.
`$set` changes fields of the session. A `$set` with `messages` replaces the whole list. Gemini CLI writes such a line
when a session starts or resumes, after it masks old outputs, and after a compaction. The list after a compaction begins
with a summary. If the new list removes or changes messages, the old list becomes a separate segment. A rebuilt list has
new ids, so the reader matches its messages with the old ones by content.

A sub-agent's log is in a folder named after the parent session. If an output is too long for the model, the folder
`tool-outputs` contains the full text in a file named after the call.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from thresher.errors import ReadError
from thresher.model import AbandonedBranch, Author, History, Message, Session, ToolResult
from thresher.transcripts.base import SessionFolder, TranscriptFormat, make_session, parse_time, title_from_prompt
from thresher.transcripts.coerce import as_dict, as_text, list_at, text_at
from thresher.transcripts.content import report_missing_outputs
from thresher.transcripts.gemini_cli.messages import GeminiRecord, build_gemini_messages, map_subagent_calls
from thresher.transcripts.source import SourceFile

NAME = "gemini-cli"
SUMMARY_TAG = "<state_snapshot>"
"""Tag that opens the summary of a compaction."""
MAX_REWIND_LOOKBACK = 100
"""Maximum number of messages to search for the parent of a rewound branch."""
HINTS_PREFIX = "User hints:"
"""Prefix of text that the user sends to all running agents."""
FULL_OUTPUT_NOTICE = "For full output see: "
"""Text in a truncated output, directly before the path of the file with the full output."""
NOTICE_SEARCH_LENGTH = 500
"""Number of characters at the start of a result to search for `FULL_OUTPUT_NOTICE`."""
_DECODER = msgspec.json.Decoder(dict[str, Any])
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class GeminiLogReader:
    """Reader that replays the log of one session."""

    def __init__(self, source: SourceFile, *, is_child: bool) -> None:
        """Start with an empty list of messages. `is_child` is True if the log is in the folder of a parent session."""
        self.source = source
        self.is_child = is_child
        self.session_fields: dict[str, Any] = {}
        self.records: Counter[str] = Counter()
        self.current: dict[str, GeminiRecord] = {}
        self.segments: list[list[GeminiRecord]] = []
        self.rewound: list[tuple[list[GeminiRecord], str]] = []
        self.compactions = 0

    def read_record(self, line: int, record: bytes, row: dict[str, Any]) -> None:
        """Apply one line of the log."""
        kind = row.get("type")
        if isinstance(row.get("$rewindTo"), str):
            self.records["$rewindTo"] += 1
            self._apply_rewind(line, row["$rewindTo"])
        elif isinstance(row.get("$set"), dict):
            self.records["$set"] += 1
            listed = row["$set"].get("messages")
            self.session_fields |= {key: value for key, value in row["$set"].items() if key != "messages"}
            if isinstance(listed, list):
                named = ((f"line-{line}-{n}", wire) for n, wire in enumerate(listed, 1))
                self._replace_list([_build_listed_record(wire, name, line) for name, wire in named])
        elif isinstance(row.get("id"), str) or isinstance(kind, str):
            self.records[kind if isinstance(kind, str) else "?"] += 1
            entry = _build_record(row, f"line-{line}", line, record)
            known = self.current.get(entry.id)
            kept = {"id": known.id, "carried": known.carried} if known else {}
            self.current[entry.id] = replace(entry, **kept)
        else:
            self.records["metadata" if isinstance(row.get("sessionId"), str) else "?"] += 1
            self.session_fields |= {key: value for key, value in row.items() if key != "messages"}

    def read_message_list(self, rows: Iterable[Any]) -> None:
        """Read the messages of a document. Generate an id if a message has none or a duplicate one."""
        for number, wire in enumerate(rows, 1):
            self.records[text_at(wire, "type") or "?"] += 1
            if not isinstance(wire, dict):
                self.source.report("a message is not a JSON object", "skipped", number)
                continue
            entry = _build_record(wire, f"message-{number}", number)
            if entry.id in self.current:
                self.source.report("a message has the id of an earlier message", "an id is generated", number)
                entry = replace(entry, id=f"message-{number}")
            self.current[entry.id] = entry

    def _apply_rewind(self, line: int, id_: str) -> None:
        if id_ not in self.current and self.current:
            self.source.report("a rewind names a message that does not exist", "all messages are removed", line)
        removed: list[GeminiRecord] = []
        while self.current:
            last, entry = self.current.popitem()
            removed.append(entry)
            if last == id_:
                break
        last_ones = islice(reversed(self.current.values()), MAX_REWIND_LOOKBACK)
        after = next((entry.id for entry in last_ones if _has_speech(entry)), "")
        self.rewound.append(([entry for entry in reversed(removed) if not entry.carried], after))

    def _replace_list(self, listed: list[GeminiRecord]) -> None:
        """Replace the message list; start a segment unless the new list extends the current one."""
        before = [entry for entry in self.current.values() if _has_speech(entry)]
        previous = _match_previous_records(listed, self.current)
        merged = {new.id: _merge_record(new, previous.get(new.id), new.id in self.current) for new in listed}
        spoken = [entry for entry in listed if _has_speech(entry)]
        pairs = zip(before, spoken, strict=False)
        extends = all(previous.get(new.id) is old and merged[new.id].content == old.content for old, new in pairs)
        if not extends or len(spoken) < len(before):
            self.segments.append([*self.current.values()])
            self.compactions += any(entry.is_summary and id_ not in previous for id_, entry in merged.items())
            merged = {id_: replace(entry, carried=id_ in previous) for id_, entry in merged.items()}
        is_carried = False
        for id_, entry in merged.items():
            # A record with only tool results is carried if the previous record is carried, even if its own id is new.
            is_carried = entry.carried if _has_speech(entry) else is_carried
            merged[id_] = replace(entry, carried=is_carried)
        self.current = merged

    def build_session(self) -> Session:
        """Return the session of all records read so far."""
        is_subagent = self.is_child or self.session_fields.get("kind") == "subagent"
        entries = [*self.segments, [*self.current.values()]]
        segments = [History(tuple(build_gemini_messages(self.source, part))) for part in entries]
        rewound = [(History(tuple(build_gemini_messages(self.source, part))), after) for part, after in self.rewound]
        title = text_at(self.session_fields, "summary") or title_from_prompt(segments)
        if is_subagent:
            prompt = next((m.id for history in segments for m in history if m.author == "human"), "")
            segments = [_with_subagent_authors(history, prompt) for history in segments]
            rewound = [(_with_subagent_authors(history, prompt), after) for history, after in rewound]
        id_ = text_at(self.session_fields, "sessionId") or self.source.stem
        project, files = _find_project(self.source.path, self.session_fields)
        times = [message.time for history in segments for message in history if message.time]
        is_in_subfolder = self.source.path.parent.parent.name == "chats"
        parent = self.source.path.parent.name if is_subagent and is_in_subfolder else ""
        started, ended = (parse_time(self.session_fields.get(key)) for key in ("startTime", "lastUpdated"))
        return make_session(
            NAME,
            self.source,
            id_,
            segments,
            branches=(AbandonedBranch(history, after) for history, after in rewound if history),
            children=() if is_subagent else _read_subagents(self.source, id_, map_subagent_calls(entries)),
            spilled=_find_spilled_outputs(self.source, id_, segments),
            files=files,
            compactions=self.compactions,
            records=self.records,
            project=project,
            title=title,
            parent=parent,
            started=started or min(times, default=None),
            ended=ended or max(times, default=None),
        )


def _build_record(wire: Any, fallback_id: str, line: int, record: bytes = b"") -> GeminiRecord:
    wire = as_dict(wire)
    return GeminiRecord(text_at(wire, "id") or fallback_id, wire, line, record)


def _build_listed_record(wire: Any, fallback_id: str, line: int) -> GeminiRecord:
    """Build the record of a message in a list; a user message with a summary tag is a summary."""
    entry = _build_record(wire, fallback_id, line)
    is_summary = entry.wire.get("type") == "user" and SUMMARY_TAG in entry.content.text
    return replace(entry, is_listed=True, is_summary=is_summary)


def _has_speech(entry: GeminiRecord) -> bool:
    """Return True for a record with user or model content, False for one with only tool results."""
    if entry.wire.get("type") != "user":
        return entry.wire.get("type") == "gemini"
    try:
        return bool(entry.content.text) or not entry.content.answers
    except RecursionError:
        return True


def _match_previous_records(
    listed: Sequence[GeminiRecord], current: dict[str, GeminiRecord]
) -> dict[str, GeminiRecord]:
    """Map the id of each listed message to its earlier record, found by id or, for a new id, by content."""
    ids = {entry.id for entry in listed}
    others: dict[tuple[str, ...], list[GeminiRecord]] = {}
    for id_, entry in reversed(current.items()):
        if id_ not in ids and _has_speech(entry):
            others.setdefault(entry.content_key, []).append(entry)
    previous: dict[str, GeminiRecord] = {}
    for entry in listed:
        same = others.get(entry.content_key) if _has_speech(entry) else None
        old = current.get(entry.id) or (same.pop() if same else None)
        if old:
            previous[entry.id] = old
    return previous


def _merge_record(new: GeminiRecord, old: GeminiRecord | None, is_known: bool) -> GeminiRecord:
    """Merge a listed message into its earlier record `old`, because messages in a rebuilt list lack usage and calls.

    `is_known` is True if the message kept its id. For a message with a new id, return `old` unchanged.
    """
    if old is None or not is_known:
        return old or new
    line = old.line if new.content == old.content else new.line
    return replace(old, wire={**old.wire, **new.wire}, line=line)


def _with_subagent_authors(history: History, prompt: str) -> History:
    """Set the authors of user text in a sub-agent's session.

    The parent's model wrote the message with the id `prompt`. A human wrote user hints, which go to all running
    agents. The harness wrote all other text.
    """

    def author_of(message: Message) -> Author:
        return "model" if message.id == prompt else "human" if message.text.startswith(HINTS_PREFIX) else "harness"

    return History(tuple(replace(m, author=author_of(m)) if m.author == "human" else m for m in history))


def _read_subagents(source: SourceFile, id_: str, calls: Mapping[str, str]) -> list[Session]:
    """Read the sub-agents in the folder of a session. A sub-agent never starts other sub-agents."""
    folder = source.path.parent / _safe_file_name(id_)
    children: list[Session] = []
    for path in _list_files_below(folder, source.path.parent):
        if path.suffix != ".jsonl":
            continue
        try:
            [child] = _read(SourceFile(path, source.limits), is_child=True)
        except ReadError as error:
            source.report(f"a sub-agent's log cannot be read ({error})", "skipped")
            continue
        call_id = calls.get(child.id) or calls.get(path.stem, "")
        children.append(replace(child, parent=id_, call_id=call_id))
    return children


def _find_spilled_outputs(source: SourceFile, id_: str, histories: Sequence[History]) -> dict[str, str]:
    """Return the files with the full text of truncated outputs, by call id. Search only this session's folder."""
    results = (result for history in histories for message in history for result in message.results)
    truncated = (result for result in results if FULL_OUTPUT_NOTICE in result.text[:NOTICE_SEARCH_LENGTH])
    stems = {result.call_id: _output_file_stem(result) for result in truncated}
    if not stems:
        return {}
    chats = _find_chats_folder(source.path) or source.path.parent
    outputs = chats.parent / "tool-outputs"
    files = {path.stem: str(path) for path in _list_files_below(outputs / f"session-{_safe_file_name(id_)}", outputs)}
    report_missing_outputs(source, sum(stem not in files for stem in stems.values()))
    return {call: files[stem] for call, stem in stems.items() if stem in files}


def _output_file_stem(result: ToolResult) -> str:
    tool, call = _safe_file_name(result.name).lower(), _safe_file_name(result.call_id).lower()
    return call if call.startswith(tool) else f"{tool}_{call}"


def _safe_file_name(name: str) -> str:
    """Convert a name to the file name that the agent uses; the result cannot contain a path separator."""
    return _UNSAFE.sub("_", name) or "_"


def _list_files_below(folder: Path, root: Path) -> list[Path]:
    """List the files in a folder, without symbolic links. Return an empty list if the folder is not below `root`."""
    try:
        is_below = folder.resolve().is_relative_to(root.resolve())
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink()) if is_below else []
    except (OSError, RuntimeError):  # the folder is missing, its name is too long, or it is a link to itself
        return []


def _find_chats_folder(path: Path) -> Path | None:
    """Return the agent's `chats` folder that contains a file, directly or one level deeper."""
    return next((folder for folder in path.parents[:2] if folder.name == "chats"), None)


def _find_project(path: Path, fields: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the project's folder, and the file from which its path was read, if any."""
    chats = _find_chats_folder(path)
    root_file = chats.parent / ".project_root" if chats else None
    try:
        if root_file and root_file.is_file():
            with root_file.open(encoding="utf-8", errors="replace") as file:
                root = file.read(4096).strip()
            if root:
                return root, (str(root_file),)
    except OSError:
        pass
    return next(filter(None, map(as_text, list_at(fields, "directories"))), ""), ()


def _read(source: SourceFile, *, is_child: bool = False) -> list[Session]:
    """Read one session."""
    reader = GeminiLogReader(source, is_child=is_child)
    document = source.document
    if isinstance(document, dict) and isinstance(document.get("messages"), list):
        source.read_document()
        reader.session_fields = {key: value for key, value in document.items() if key != "messages"}
        reader.read_message_list(document["messages"])
    elif next(iter(source.lines()), (0, b""))[1].strip() in (b"{", b"["):
        raise ReadError(f"`{source.path}` is a damaged document, or not a session of Gemini CLI")
    else:
        for line, record, row in source.records(_DECODER):
            try:
                reader.read_record(line, record, row)
            except RecursionError:
                source.report("a record is nested too deeply", "skipped", line)
    return [reader.build_session()]


def _owns_line(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    is_message = row.get("type") in ("user", "gemini", "info", "error", "warning") and {"id", "content"} <= row.keys()
    is_head = isinstance(row.get("sessionId"), str) and isinstance(row.get("projectHash"), str)
    return is_message or is_head or "$rewindTo" in row or isinstance(row.get("$set"), dict)


def _sniff(source: SourceFile) -> int:
    """Match a log by its session fields or changes, or a document with a session id and Gemini CLI's messages."""
    for row in source.head:
        if isinstance(row, dict) and isinstance(row.get("sessionId"), str) and isinstance(row.get("projectHash"), str):
            return 3
        if isinstance(row, dict) and ("$rewindTo" in row or isinstance(row.get("$set"), dict)):
            return 3
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("sessionId"), str):
        return 0
    kinds = {text_at(wire, "type") for wire in list_at(document, "messages") if "content" in as_dict(wire)}
    return 3 if "projectHash" in document and "messages" in document else 2 if "gemini" in kinds else 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the session folders in `GEMINI_CLI_HOME` or, if it is not set, in the home directory."""
    root = Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"
    older = SessionFolder(root, "*/chats/session-*.json", newer=".jsonl")
    return [SessionFolder(root, "*/chats/session-*.jsonl"), older]


FORMAT = TranscriptFormat(
    NAME,
    "Gemini CLI",
    _sniff,
    _read,
    _homes,
    resume="gemini --resume {id}",
    wire="gemini",
    layouts="the log of changes (`.jsonl`), with sub-agents and spilled outputs; the older JSON document",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "rewinds", "compactions"),
    seen="JSON of January 2026; 0.61",
    owns_line=_owns_line,
)
