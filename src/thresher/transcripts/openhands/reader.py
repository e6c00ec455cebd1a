"""OpenHands: events of a conversation, in the many ways that it has kept them.

- A list of events in one document: what the web page exports, and what a run writes with `--save-trajectory`.
- A line or a document with the events under `history`: a session each, as the evaluations write them; in the oldest,
  pairs of an action and what was observed.
- A folder of files, one an event: `sessions/<id>/events/0.json` and on until 0.62, and since 1.0
  `conversations/<id>/events/event-00000-<id>.json` beside a `base_state.json`, with sub-agents in `subagents/`.

Since 1.33 each event names its parent, so that a conversation can go on from any point: what is not on the way to its
head was taken back. Until 0.62 what a delegate does stands between the call that starts it and its answer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from thresher.errors import ReadError
from thresher.model import Problem, Session, SourceLocation, ToolCall, Usage
from thresher.model.jsontext import load_json, load_json_object
from thresher.transcripts.base import SessionFolder, TranscriptFormat, parse_openai_chat_usage, parse_time
from thresher.transcripts.coerce import as_dict, dict_at, first_text, list_at, text_at
from thresher.transcripts.openhands.events import ModelFacts, is_openhands_event
from thresher.transcripts.openhands.session import (
    MAX_DELEGATE_DEPTH,
    NAME,
    OpenHandsEvent,
    OpenHandsRun,
    build_openhands_session,
)
from thresher.transcripts.source import SourceFile

BASE_STATE_FILE = "base_state.json"
FIRST_EVENT_FILE = "0.json"
_JSON_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_EVENT_FILE_NAME = re.compile(r"(?:event-)?(\d{1,18})(?:-[\w-]+)?\.json")


def _read(source: SourceFile) -> list[Session]:
    """The sessions of a file, or the one of the folder that it stands in."""
    if source.path.name == BASE_STATE_FILE:
        return [_read_conversation_folder(source, 0)]
    sessions = [_read_legacy_folder(source)] if _is_first_event_file(source.path) else list(_read_sessions(source))
    if not sessions:
        raise ReadError(f"`{source.path}` holds no events; is it a conversation of OpenHands?")
    return [replace(sessions[0], problems=tuple(source.problems)), *sessions[1:]]


def _is_first_event_file(path: Path) -> bool:
    return path.name == FIRST_EVENT_FILE and path.parent.name == "events"


# One file


def _read_sessions(source: SourceFile) -> Iterator[Session]:
    document = source.read_document()
    stem = source.stem
    if isinstance(document, list) or is_openhands_event(document):
        values = document if isinstance(document, list) else [document]
        found = [(source.at(number), value) for number, value in enumerate(values, 1)]
        yield build_openhands_session(source, OpenHandsRun(stem), _index_events(source, found))
    elif isinstance(document, dict) and _raw_events(document):
        yield _read_evaluation(source, document, _instance_id(document) or stem, line=0)
    elif document is None:
        yield from _read_lines(source, stem)


def _raw_events(row: dict[str, Any]) -> list[Any]:
    return list_at(row, "history") or list_at(row, "trajectory")


def _read_lines(source: SourceFile, stem: str) -> Iterator[Session]:
    """One session a line, or all lines the events of one."""
    loose: list[tuple[SourceLocation, Any]] = []
    ids: set[str] = set()
    for line, _, row in source.records(_JSON_DECODER):
        if isinstance(row, dict) and _raw_events(row):
            id_ = _instance_id(row) or f"{stem}-{line}"
            while id_ in ids:  # a task that was tried again
                id_ = f"{id_}-{line}"
            ids.add(id_)
            yield _read_evaluation(source, row, id_, line)
        elif isinstance(row, dict) and (loose or is_openhands_event(row)):
            loose.append((source.at(line), row))
        else:
            source.report("a line holds no events", "skipped", line)
    if loose:
        yield build_openhands_session(source, OpenHandsRun(stem), _index_events(source, loose))


def _instance_id(row: dict[str, Any]) -> str:
    return first_text(row, "instance_id", "id")


def _read_evaluation(source: SourceFile, row: dict[str, Any], id_: str, line: int) -> Session:
    """A session as an evaluation writes it; in a document its events have numbers, in a line they have the line's."""
    values = [event for one in _raw_events(row) for event in (one if isinstance(one, list) else [one])]
    placed = [(source.at(line or number), value) for number, value in enumerate(values, 1)]
    metadata = dict_at(row, "metadata")
    model = text_at(metadata, "llm_config", "model") or text_at(metadata, "model_name")
    bills = _parse_usages([dict_at(row, "metrics")])
    return build_openhands_session(source, OpenHandsRun(id_, ModelFacts(model, bills)), _index_events(source, placed))


def _index_events(source: SourceFile, values: Iterable[tuple[SourceLocation, Any]]) -> list[OpenHandsEvent]:
    """The events, each with an id that no other has."""
    found: list[OpenHandsEvent] = []
    seen: set[str] = set()
    for number, (place, wire) in enumerate(values, 1):
        if not isinstance(wire, dict):
            source.report("an event is no object", "skipped", place.line)
            continue
        given = wire.get("id")
        id_ = str(given) if type(given) is int or (isinstance(given, str) and given) else ""
        if not id_ or id_ in seen:
            id_ = f"event-{number}"
        while id_ in seen:
            id_ += "-"
        seen.add(id_)
        found.append(OpenHandsEvent(id_, wire, place, parse_time(wire.get("timestamp"))))
    return found


# Folders


def _read_legacy_folder(source: SourceFile) -> Session:
    """A session until 0.62: numbered files, and what is known of them in a file beside their folder."""
    folder = source.path.parent
    metadata = _load_json_object(source, folder.parent / "metadata.json", is_needed=False)
    values, files = _load_event_files(source, folder)
    beside = (folder.parent / "metadata.json",) if metadata else ()
    run = OpenHandsRun(
        text_at(metadata, "conversation_id") or folder.parent.name,
        title=text_at(metadata, "title"),
        git_branch=text_at(metadata, "selected_branch"),
        # A new event is a new file: the folder tells.
        files=tuple(map(str, (*beside, folder, *(path for path in files if path != source.path)))),
    )
    return build_openhands_session(source, run, _index_events(source, values))


def _read_conversation_folder(source: SourceFile, depth: int, parent: str = "") -> Session:
    """A conversation since 1.0, with its sub-agents."""
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
    children = list(_read_subagents(source, session.id, depth)) if depth < MAX_DELEGATE_DEPTH else []
    return replace(
        session, problems=tuple(source.problems), children=(*session.children, *_link_subagent_calls(session, children))
    )


def _read_subagents(source: SourceFile, parent: str, depth: int) -> Iterator[Session]:
    """The sub-agents in the folder of a conversation."""
    folder = source.path.parent
    for path in sorted(folder.glob(f"subagents/*/{BASE_STATE_FILE}")):
        try:
            if path.resolve().is_relative_to(folder.resolve()):
                yield _read_conversation_folder(SourceFile(path, source.limits), depth + 1, parent)
        except (ReadError, OSError) as error:
            source.report(f"a sub-agent's conversation cannot be read: {error}", "left out")


def _load_event_files(source: SourceFile, folder: Path) -> tuple[list[tuple[SourceLocation, Any]], list[Path]]:
    """The events of a folder in order, and their files."""
    try:
        named = [(int(found[1]), path) for path in folder.iterdir() if (found := _EVENT_FILE_NAME.fullmatch(path.name))]
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
        source.problems.append(Problem("an event is not a JSON object, or torn, or too large", "skipped", str(path), 1))
    return as_dict(value)


def _link_subagent_calls(session: Session, children: Iterable[Session]) -> Iterator[Session]:
    """Sub-agents, each with the call that holds its prompt."""
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
    told = [arguments.get("prompt"), *dict_at(arguments, "tasks").values()]
    return [prompt for prompt in told if isinstance(prompt, str)]


def _parse_usages(metrics: Iterable[dict[str, Any]]) -> dict[str, Usage]:
    """The bill of each response, by its id."""
    bills: dict[str, Usage] = {}
    for row in (as_dict(row) for one in metrics for row in list_at(one, "token_usages")):
        details = {"reasoning_tokens": row.get("reasoning_tokens")}
        cached = {"cache_read_input_tokens": row.get("cache_read_tokens")}
        written = {"cache_creation_input_tokens": row.get("cache_write_tokens")}
        usage = parse_openai_chat_usage({**row, **cached, **written, "completion_tokens_details": details})
        if usage and (id_ := text_at(row, "response_id")):
            bills[id_] = usage
    return bills


# Where it is found


def _sniff(source: SourceFile) -> int:
    """Events, alone, in a row, or under `history`; a folder's state; the first file of a folder of events."""
    if source.path.parent.name == "events":  # the first of them stands for all
        return 3 if _is_first_event_file(source.path) and is_openhands_event(source.document) else 0
    head = next(iter(source.head), None)
    value = source.document if head is None or not isinstance(head, dict) else head
    if isinstance(value, list):
        return 3 if any(map(is_openhands_event, value[:3])) else 0
    if not isinstance(value, dict):
        return 0
    if source.path.name == BASE_STATE_FILE:
        return 3 if {"agent", "workspace", "id"} <= value.keys() else 0
    inner = [one for event in _raw_events(value)[:3] for one in (event if isinstance(event, list) else [event])]
    return 3 if any(map(is_openhands_event, [value, *inner])) else 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """The folders of both generations, on every system below the home directory."""
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
