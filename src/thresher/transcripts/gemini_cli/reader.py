"""Gemini CLI: a log of changes to a list of messages, a line each; before that, one JSON document a session.

A line with an id that is in the list takes that message's place. `$rewindTo` takes a message and all behind it back.
`$set` changes facts of the session; with `messages` it puts another list in the place of the one there is: the first
one, the same once more when a session goes on, one whose old outputs are masked, or one that starts with a summary.
What a list drops or changes is kept in the segment before it. A list made anew has new ids, so its messages are known
again by what they say.

A sub-agent's log lies in a folder named like its parent's session. An output that was too long for the model lies as a
whole in `tool-outputs`, in a file named like its call.
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
"""What opens the summary of a compression."""
MAX_REWIND_LOOKBACK = 100
"""How far back the message is looked for that a way was left from."""
HINTS_PREFIX = "User hints:"
"""How a person's words begin that are told to all who are at work."""
FULL_OUTPUT_NOTICE = "For full output see: "
"""What leads from the beginning and the end of an output to all of it."""
NOTICE_SEARCH_LENGTH = 500
"""How far into a result that is looked for."""
_DECODER = msgspec.json.Decoder(dict[str, Any])
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class GeminiLogReader:
    """A session while its log is replayed."""

    def __init__(self, source: SourceFile, *, is_child: bool) -> None:
        """Nothing yet; `is_child` where it lies in the folder of the session that started it."""
        self.source = source
        self.is_child = is_child
        self.session_fields: dict[str, Any] = {}
        self.records: Counter[str] = Counter()
        self.current: dict[str, GeminiRecord] = {}
        self.segments: list[list[GeminiRecord]] = []
        self.rewound: list[tuple[list[GeminiRecord], str]] = []
        self.compactions = 0

    def read_record(self, line: int, record: bytes, row: dict[str, Any]) -> None:
        """One line."""
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
        """The messages of a document; each has its place, whatever it is called."""
        for number, wire in enumerate(rows, 1):
            self.records[text_at(wire, "type") or "?"] += 1
            if not isinstance(wire, dict):
                self.source.report("a message is no object", "skipped", number)
                continue
            entry = _build_record(wire, f"message-{number}", number)
            if entry.id in self.current:
                self.source.report("a message has the id of another", "named by its place", number)
                entry = replace(entry, id=f"message-{number}")
            self.current[entry.id] = entry

    def _apply_rewind(self, line: int, id_: str) -> None:
        if id_ not in self.current and self.current:
            self.source.report("the message that was gone back to is not here", "all were taken back", line)
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
        """Another list in place of the one there is; a new segment if it does not merely go on from it."""
        before = [entry for entry in self.current.values() if _has_speech(entry)]
        found = _match_previous_records(listed, self.current)
        merged = {new.id: _merge_record(new, found.get(new.id), new.id in self.current) for new in listed}
        spoken = [entry for entry in listed if _has_speech(entry)]
        pairs = zip(before, spoken, strict=False)
        goes_on = all(found.get(new.id) is old and merged[new.id].has_same_content(old) for old, new in pairs)
        if not goes_on or len(spoken) < len(before):
            self.segments.append([*self.current.values()])
            self.compactions += any(entry.is_summary and id_ not in found for id_, entry in merged.items())
            merged = {id_: replace(entry, carried=id_ in found) for id_, entry in merged.items()}
        is_carried = False
        for id_, entry in merged.items():
            # What a tool answered is as old as the call, whatever it is called now.
            is_carried = entry.carried if _has_speech(entry) else is_carried
            merged[id_] = replace(entry, carried=is_carried)
        self.current = merged

    def build_session(self) -> Session:
        """What came of it."""
        is_subagent = self.is_child or self.session_fields.get("kind") == "subagent"
        entries = [*self.segments, [*self.current.values()]]
        told = [History(tuple(build_gemini_messages(self.source, part))) for part in entries]
        left = [(History(tuple(build_gemini_messages(self.source, part))), after) for part, after in self.rewound]
        title = text_at(self.session_fields, "summary") or title_from_prompt(told)
        if is_subagent:
            prompt = next((m.id for history in told for m in history if m.author == "human"), "")
            told = [_with_subagent_authors(history, prompt) for history in told]
            left = [(_with_subagent_authors(history, prompt), after) for history, after in left]
        id_ = text_at(self.session_fields, "sessionId") or self.source.stem
        project, files = _find_project(self.source.path, self.session_fields)
        times = [message.time for history in told for message in history if message.time]
        begun, ended = (parse_time(self.session_fields.get(key)) for key in ("startTime", "lastUpdated"))
        return make_session(
            NAME,
            self.source,
            id_,
            told,
            branches=(AbandonedBranch(history, after) for history, after in left if history),
            children=() if is_subagent else tuple(_read_subagents(self.source, id_, map_subagent_calls(entries))),
            spilled=_find_spilled_outputs(self.source, id_, told),
            files=files,
            compactions=self.compactions,
            records=self.records,
            project=project,
            title=title,
            parent=self.source.path.parent.name if is_subagent and _chats_folder(self.source.path, 1) else "",
            started=begun or min(times, default=None),
            ended=ended or max(times, default=None),
        )


def _build_record(wire: Any, place: str, line: int, record: bytes = b"") -> GeminiRecord:
    wire = as_dict(wire)
    return GeminiRecord(text_at(wire, "id") or place, wire, line, record)


def _build_listed_record(wire: Any, place: str, line: int) -> GeminiRecord:
    """A message of a list that takes the place of another: it may be the summary of what was there."""
    entry = _build_record(wire, place, line)
    is_summary = entry.wire.get("type") == "user" and SUMMARY_TAG in entry.content.text
    return replace(entry, is_listed=True, is_summary=is_summary)


def _has_speech(entry: GeminiRecord) -> bool:
    """Whether a person or a model says something in it, and it does not only hold what tools answered."""
    if entry.wire.get("type") != "user":
        return entry.wire.get("type") == "gemini"
    try:
        return bool(entry.content.text) or not entry.content.answers
    except RecursionError:
        return True


def _match_previous_records(
    listed: Sequence[GeminiRecord], current: dict[str, GeminiRecord]
) -> dict[str, GeminiRecord]:
    """For each message of a list the one that it was: by its id, else the next that says the same."""
    ids = {entry.id for entry in listed}
    others: dict[tuple[str, ...], list[GeminiRecord]] = {}
    for id_, entry in reversed(current.items()):
        if id_ not in ids and _has_speech(entry):
            others.setdefault(entry.content_key, []).append(entry)
    found: dict[str, GeminiRecord] = {}
    for entry in listed:
        same = others.get(entry.content_key) if _has_speech(entry) else None
        old = current.get(entry.id) or (same.pop() if same else None)
        if old:
            found[entry.id] = old
    return found


def _merge_record(new: GeminiRecord, old: GeminiRecord | None, is_known: bool) -> GeminiRecord:
    """A message of a new list with what is known of it: one that was made anew has lost its bill and its calls."""
    if old is None or not is_known:
        return old or new
    line = old.line if new.has_same_content(old) else new.line
    return replace(old, wire={**old.wire, **new.wire}, line=line)


def _with_subagent_authors(history: History, prompt: str) -> History:
    """In a sub-agent's session nobody types: its prompt is its parent's model's, and what comes later the harness's.

    Only what a person wants to be heeded at once is told to sub-agents, too.
    """

    def by(message: Message) -> Author:
        return "model" if message.id == prompt else "human" if message.text.startswith(HINTS_PREFIX) else "harness"

    return History(tuple(replace(m, author=by(m)) if m.author == "human" else m for m in history))


def _read_subagents(source: SourceFile, id_: str, calls: Mapping[str, str]) -> list[Session]:
    """The sub-agents whose logs lie in the folder of this session; sub-agents have none of their own."""
    folder = source.path.parent / _safe_file_name(id_)
    children: list[Session] = []
    for path in _list_files_below(folder, source.path.parent):
        if path.suffix != ".jsonl":
            continue
        try:
            child = _read_session(SourceFile(path, source.limits), is_child=True)
        except ReadError as error:
            source.report(f"a sub-agent's log cannot be read ({error})", "left out")
            continue
        call_id = calls.get(child.id) or calls.get(path.stem, "")
        children.append(replace(child, parent=id_, call_id=call_id))
    return children


def _find_spilled_outputs(source: SourceFile, id_: str, histories: Sequence[History]) -> dict[str, str]:
    """Outputs too long for the model, by call; looked for only in the folder of this session's outputs."""
    results = [result for history in histories for message in history for result in message.results]
    cut = [result for result in results if FULL_OUTPUT_NOTICE in result.text[:NOTICE_SEARCH_LENGTH]]
    names = {result.call_id: _output_file_stem(result) for result in cut}
    if not names:
        return {}
    chats = _chats_folder(source.path, 0) or _chats_folder(source.path, 1) or source.path.parent
    outputs = chats.parent / "tool-outputs"
    here = {path.stem: str(path) for path in _list_files_below(outputs / f"session-{_safe_file_name(id_)}", outputs)}
    report_missing_outputs(source, sum(name not in here for name in names.values()))
    return {call: here[name] for call, name in names.items() if name in here}


def _output_file_stem(result: ToolResult) -> str:
    tool, call = _safe_file_name(result.name).lower(), _safe_file_name(result.call_id).lower()
    return call if call.startswith(tool) else f"{tool}_{call}"


def _safe_file_name(name: str) -> str:
    """A name as the agent makes it fit for a file: no way leads out of a folder by it."""
    return _UNSAFE.sub("_", name) or "_"


def _list_files_below(folder: Path, root: Path) -> list[Path]:
    """The files of a folder below another; links that lead out of it are not followed."""
    try:
        is_below = folder.resolve().is_relative_to(root.resolve())
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink()) if is_below else []
    except (OSError, RuntimeError):  # it is not there, its name is too long, or it is a link to itself
        return []


def _chats_folder(path: Path, above: int) -> Path | None:
    """The agent's folder of chats that a file lies in, directly or one folder deeper."""
    folder = path.parents[above] if len(path.parents) > above else path.parent
    return folder if folder.name == "chats" else None


def _find_project(path: Path, facts: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The project's folder, and the file that told it."""
    chats = _chats_folder(path, 0) or _chats_folder(path, 1)
    told = chats.parent / ".project_root" if chats else None
    try:
        if told and told.is_file():
            with told.open(encoding="utf-8", errors="replace") as file:
                root = file.read(4096).strip()
            if root:
                return root, (str(told),)
    except OSError:
        pass
    return next(filter(None, map(as_text, list_at(facts, "directories"))), ""), ()


def _read(source: SourceFile) -> list[Session]:
    """One session."""
    return [_read_session(source, is_child=False)]


def _read_session(source: SourceFile, *, is_child: bool) -> Session:
    reading = GeminiLogReader(source, is_child=is_child)
    document = source.document
    if isinstance(document, dict) and isinstance(document.get("messages"), list):
        source.read_document()
        reading.session_fields = {key: value for key, value in document.items() if key != "messages"}
        reading.read_message_list(document["messages"])
    elif next(iter(source.lines()), (0, b""))[1].strip() in (b"{", b"["):
        raise ReadError(f"`{source.path}` is a document that is torn, or none of Gemini CLI's")
    else:
        for line, record, row in source.records(_DECODER):
            try:
                reading.read_record(line, record, row)
            except RecursionError:
                source.report("a record is nested too deep to follow", "skipped", line)
    return reading.build_session()


def _sniff(source: SourceFile) -> int:
    """The facts of a session on the first line of a log, or around a list of messages."""
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
    """`.gemini` in `GEMINI_CLI_HOME`, else in the home directory; a folder for each project."""
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
    layouts="the log of changes (`.jsonl`), with sub-agents and spilled outputs beside it; the JSON document before it",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "rewinds", "compactions"),
    seen="JSON of January 2026; 0.61",
)
