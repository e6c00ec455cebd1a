"""OpenHands: the events of a conversation, in several layouts.

- A list of events in one document: an export from the web interface, or the output of `--save-trajectory`.
- The output of evaluations: a line or a document per session, with the events under `history`. The oldest outputs
  contain pairs of an action and an observation.
- A folder with one file per event. Until 0.62, the files are `sessions/<id>/events/0.json` and so on. Since 1.0, they
  are `conversations/<id>/events/event-00000-<id>.json` and so on, with a `base_state.json` and the sub-agents in
  `subagents/` next to `events/`.

Since 1.33, each event has a parent, so a conversation can continue from any event. The head is the last event of the
active path. Events outside this path are abandoned branches. Until 0.62, the events of a delegate are between the call
that started the delegate and the result of that call.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from thresher.errors import ReadError
from thresher.model import Problem, Session, SourceLocation, ToolCall, Usage
from thresher.model.jsontext import load_json, load_json_object
from thresher.transcripts.base import SessionFolder, TranscriptFormat, parse_openai_chat_usage, parse_time
from thresher.transcripts.coerce import as_dict, as_text, dict_at, first_text, list_at, text_at
from thresher.transcripts.openhands.events import ModelFacts, is_openhands_event
from thresher.transcripts.openhands.session import NAME, OpenHandsEvent, OpenHandsRun, build_openhands_session
from thresher.transcripts.source import SourceFile

BASE_STATE_FILE = "base_state.json"
FIRST_EVENT_FILE = "0.json"
_JSON_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_EVENT_FILE_NAME = re.compile(r"(?:event-)?(\d{1,18})(?:-[\w-]+)?\.json")


def _read(source: SourceFile) -> list[Session]:
    """Read the sessions of a file, or of a folder if the file is the folder's state or first event."""
    if source.path.name == BASE_STATE_FILE:
        return [_read_conversation_folder(source, 0)]
    sessions = [_read_legacy_folder(source)] if _is_first_event_file(source.path) else list(_read_sessions(source))
    if not sessions:
        raise ReadError(f"`{source.path}` has no events: is it a conversation of OpenHands?")
    return [replace(sessions[0], problems=tuple(source.problems)), *sessions[1:]]


def _is_first_event_file(path: Path) -> bool:
    return path.name == FIRST_EVENT_FILE and path.parent.name == "events"


# One file


def _read_sessions(source: SourceFile) -> Iterator[Session]:
    document = source.read_document()
    stem = source.stem
    if isinstance(document, list) or is_openhands_event(document):
        values = document if isinstance(document, list) else [document]
        placed = [(source.at(number), value) for number, value in enumerate(values, 1)]
        yield build_openhands_session(source, OpenHandsRun(stem), _index_events(source, placed))
    elif isinstance(document, dict) and _raw_events(document):
        yield _read_evaluation(source, document, _instance_id(document) or stem, line=0)
    elif document is None:
        yield from _read_lines(source, stem)


def _raw_events(row: dict[str, Any]) -> list[Any]:
    return list_at(row, "history") or list_at(row, "trajectory")


def _flatten_events(values: Iterable[Any]) -> list[Any]:
    return [event for value in values for event in (value if isinstance(value, list) else [value])]


def _read_lines(source: SourceFile, stem: str) -> Iterator[Session]:
    """Read one session per line, or one session whose events are the lines."""
    events: list[tuple[SourceLocation, Any]] = []
    ids: set[str] = set()
    for line, _, row in source.records(_JSON_DECODER):
        if isinstance(row, dict) and _raw_events(row):
            id_ = _instance_id(row) or f"{stem}-{line}"
            while id_ in ids:  # the file contains several runs of a task
                id_ = f"{id_}-{line}"
            ids.add(id_)
            yield _read_evaluation(source, row, id_, line)
        elif isinstance(row, dict) and (events or is_openhands_event(row)):
            events.append((source.at(line), row))
        else:
            source.report("a line has no events", "skipped", line)
    if events:
        yield build_openhands_session(source, OpenHandsRun(stem), _index_events(source, events))


def _instance_id(row: dict[str, Any]) -> str:
    return first_text(row, "instance_id", "id")


def _read_evaluation(source: SourceFile, row: dict[str, Any], id_: str, line: int) -> Session:
    """Read a session of an evaluation. If `line` is 0, the file is one document: source lines are event numbers."""
    values = _flatten_events(_raw_events(row))
    placed = [(source.at(line or number), value) for number, value in enumerate(values, 1)]
    metadata = dict_at(row, "metadata")
    model = text_at(metadata, "llm_config", "model") or text_at(metadata, "model_name")
    model_info = ModelFacts(model, _parse_usages([dict_at(row, "metrics")]))
    return build_openhands_session(source, OpenHandsRun(id_, model_info), _index_events(source, placed))


def _index_events(source: SourceFile, values: Iterable[tuple[SourceLocation, Any]]) -> list[OpenHandsEvent]:
    """Return the events and give each a unique id."""
    events: list[OpenHandsEvent] = []
    seen: set[str] = set()
    for number, (location, wire) in enumerate(values, 1):
        if not isinstance(wire, dict):
            source.report("an event is not a JSON object", "skipped", location.line)
            continue
        wire_id = wire.get("id")
        id_ = str(wire_id) if type(wire_id) is int else as_text(wire_id)
        if not id_ or id_ in seen:
            id_ = f"event-{number}"
        while id_ in seen:
            id_ += "-"
        seen.add(id_)
        events.append(OpenHandsEvent(id_, wire, location, parse_time(wire.get("timestamp"))))
    return events


# Folders


def _read_legacy_folder(source: SourceFile) -> Session:
    """Read a session from before 1.0: numbered event files and a metadata file next to their folder."""
    folder = source.path.parent
    metadata = _load_json_object(source, folder.parent / "metadata.json", is_needed=False)
    values, files = _load_event_files(source, folder)
    metadata_files = (folder.parent / "metadata.json",) if metadata else ()
    run = OpenHandsRun(
        text_at(metadata, "conversation_id") or folder.parent.name,
        title=text_at(metadata, "title"),
        git_branch=text_at(metadata, "selected_branch"),
        # Each new event adds a file to the folder, so the session's files include the folder.
        files=tuple(map(str, (*metadata_files, folder, *(path for path in files if path != source.path)))),
    )
    return build_openhands_session(source, run, _index_events(source, values))


def _read_conversation_folder(source: SourceFile, depth: int, parent: str = "") -> Session:
    """Read a conversation of version 1.0 or later, with its sub-agents."""
    folder = source.path.parent
    state = as_dict(source.read_document())
    values, files = _load_event_files(source, folder / "events")
    stats = dict_at(state, "stats", "usage_to_metrics") or dict_at(state, "stats", "service_to_metrics")
    run = OpenHandsRun(
        text_at(state, "id") or folder.name,
        ModelFacts(text_at(state, "agent", "llm", "model"), _parse_usages(map(as_dict, stats.values()))),
        title=text_at(state, "tags", "title"),
        project=text_at(state, "workspace", "working_dir"),
        head_event_id=text_at(state, "leaf_event_id"),
        is_head_empty=state.get("head_is_empty") is True,
        parent=parent,
        files=tuple(map(str, files)),
        depth=depth,
    )
    session = build_openhands_session(source, run, _index_events(source, values))
    children: Sequence[Session] = list(_read_subagents(source, session.id, depth)) if run.can_delegate else ()
    children = (*session.children, *_link_subagent_calls(session, children))
    return replace(session, problems=tuple(source.problems), children=children)


def _read_subagents(source: SourceFile, parent: str, depth: int) -> Iterator[Session]:
    """Read the sub-agents in the folder of a conversation."""
    folder = source.path.parent
    for path in sorted(folder.glob(f"subagents/*/{BASE_STATE_FILE}")):
        try:
            if path.resolve().is_relative_to(folder.resolve()):
                yield _read_conversation_folder(SourceFile(path, source.limits), depth + 1, parent)
        except (ReadError, OSError) as error:
            source.report(f"a sub-agent's conversation cannot be read: {error}", "skipped")


def _load_event_files(source: SourceFile, folder: Path) -> tuple[list[tuple[SourceLocation, Any]], list[Path]]:
    """Return the events of a folder in order with their locations, and the paths of all event files."""
    try:
        matches = ((_EVENT_FILE_NAME.fullmatch(path.name), path) for path in folder.iterdir())
        named = [(int(match[1]), path) for match, path in matches if match]
    except OSError:
        named = []
    paths = [path for _, path in sorted(named)]
    values = ((path, _load_json_object(source, path)) for path in paths)
    return [(SourceLocation(str(path), 1), value) for path, value in values if value], paths


def _load_json_object(source: SourceFile, path: Path, *, is_needed: bool = True) -> dict[str, Any]:
    try:
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= source.limits.line else b""
        value = load_json(data)
    except (OSError, ValueError, RecursionError):
        value = None
    if is_needed and not isinstance(value, dict):
        source.problems.append(Problem("an event is too large, damaged or not a JSON object", "skipped", str(path), 1))
    return as_dict(value)


def _link_subagent_calls(session: Session, children: Iterable[Session]) -> Iterator[Session]:
    """Link each sub-agent to the call that contains the sub-agent's prompt."""
    calls: dict[str, list[str]] = {}
    for call in (call for message in session.messages() for call in message.calls):
        for prompt in _subagent_prompts(call):
            calls.setdefault(prompt.strip(), []).append(call.id)
    for child in children:
        prompt = next((message.text.strip() for message in child.messages() if message.role == "user"), "")
        waiting = calls.get(prompt) or [""]
        yield replace(child, call_id=waiting.pop(0))


def _subagent_prompts(call: ToolCall) -> list[str]:
    if call.name not in ("task", "delegate"):
        return []
    arguments = load_json_object(call.arguments)
    prompts = [arguments.get("prompt"), *dict_at(arguments, "tasks").values()]
    return [prompt for prompt in prompts if isinstance(prompt, str)]


def _parse_usages(metrics: Iterable[dict[str, Any]]) -> dict[str, Usage]:
    """Return the usage of each response, by response id."""
    usages: dict[str, Usage] = {}
    for row in (as_dict(row) for metric in metrics for row in list_at(metric, "token_usages")):
        fields = {
            **row,
            "cache_read_input_tokens": row.get("cache_read_tokens"),
            "cache_creation_input_tokens": row.get("cache_write_tokens"),
            "completion_tokens_details": {"reasoning_tokens": row.get("reasoning_tokens")},
        }
        usage = parse_openai_chat_usage(fields)
        if usage and (id_ := text_at(row, "response_id")):
            usages[id_] = usage
    return usages


# Detection and discovery


def _sniff(source: SourceFile) -> int:
    """Match events (alone, in a list or under `history`), a folder's state or the first file of a folder of events."""
    if source.path.parent.name == "events":  # the first file represents the folder
        return 3 if _is_first_event_file(source.path) and is_openhands_event(source.document) else 0
    head = next(iter(source.head), None)
    value = source.document if head is None or not isinstance(head, dict) else head
    if isinstance(value, list):
        return 3 if any(map(is_openhands_event, value[:3])) else 0
    if not isinstance(value, dict):
        return 0
    if source.path.name == BASE_STATE_FILE:
        return 3 if {"agent", "workspace", "id"} <= value.keys() else 0
    inner = _flatten_events(_raw_events(value)[:3])
    return 3 if any(map(is_openhands_event, [value, *inner])) else 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the session folders of both generations, which are the same on every platform."""
    root = Path(environment.get("OPENHANDS_PERSISTENCE_DIR") or home / ".openhands")
    conversations = Path(environment.get("OPENHANDS_CONVERSATIONS_DIR") or root / "conversations")
    stores = [Path(environment.get("FILE_STORE_PATH") or home / ".openhands"), home / ".openhands-state"]
    sessions = [SessionFolder(store / "sessions", f"*/events/{FIRST_EVENT_FILE}") for store in stores]
    return [SessionFolder(conversations, f"*/{BASE_STATE_FILE}"), *sessions]


FORMAT = TranscriptFormat(
    NAME,
    "OpenHands",
    _sniff,
    _read,
    _homes,
    resume="openhands --resume {id}",
    layouts="exports, outputs of evaluations, and folders of events: `sessions/` and, since 1.0, `conversations/`",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "rewinds", "compactions"),
    seen="0.6 to 0.35; 1.x by its source",
)
