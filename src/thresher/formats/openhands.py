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
from msgspec import structs

from thresher.errors import ReadError
from thresher.formats.loose import at, fields, items, text
from thresher.formats.openhands_events import Told, is_event
from thresher.formats.openhands_session import DEEPEST, NAME, Event, Run, session_of
from thresher.formats.source import SourceFile
from thresher.formats.transcript import Home, TranscriptFormat, chat_usage, timestamp
from thresher.model import Problem, Session, Source, ToolCall, Usage
from thresher.model.jsontext import load, load_fields

BASE = "base_state.json"
FIRST = "0.json"
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_FILE = re.compile(r"(?:event-)?(\d{1,18})(?:-[\w-]+)?\.json")


def read(source: SourceFile) -> list[Session]:
    """The sessions of a file, or the one of the folder that it stands in."""
    if source.path.name == BASE:
        return [_conversation(source, 0)]
    sessions = [_stored(source)] if _is_first(source.path) else list(_sessions(source))
    if not sessions:
        raise ReadError(f"`{source.path}` holds no events; is it a conversation of OpenHands?")
    return [structs.replace(sessions[0], problems=tuple(source.problems)), *sessions[1:]]


def _is_first(path: Path) -> bool:
    return path.name == FIRST and path.parent.name == "events"


# One file


def _sessions(source: SourceFile) -> Iterator[Session]:
    document = source.take_document()
    stem = source.path.name.split(".")[0]
    if isinstance(document, list) or is_event(document):
        values = document if isinstance(document, list) else [document]
        found = [(Source(str(source.path), number), value) for number, value in enumerate(values, 1)]
        yield session_of(source, Run(stem), _events(source, found))
    elif isinstance(document, dict) and _history(document):
        yield _evaluated(source, document, _name(document) or stem, line=0)
    elif document is None:
        yield from _lines(source, stem)


def _history(row: dict[str, Any]) -> list[Any]:
    return items(row.get("history")) or items(row.get("trajectory"))


def _lines(source: SourceFile, stem: str) -> Iterator[Session]:
    """One session a line, or all lines the events of one."""
    loose: list[tuple[Source, Any]] = []
    ids: set[str] = set()
    for line, _, row in source.rows(_ANY):
        if isinstance(row, dict) and _history(row):
            id_ = _name(row) or f"{stem}-{line}"
            while id_ in ids:  # a task that was tried again
                id_ = f"{id_}-{line}"
            ids.add(id_)
            yield _evaluated(source, row, id_, line)
        elif isinstance(row, dict) and (loose or is_event(row)):
            loose.append((Source(str(source.path), line), row))
        else:
            source.problem("a line holds no events", "skipped", line)
    if loose:
        yield session_of(source, Run(stem), _events(source, loose))


def _name(row: dict[str, Any]) -> str:
    return text(row.get("instance_id")) or text(row.get("id"))


def _evaluated(source: SourceFile, row: dict[str, Any], id_: str, line: int) -> Session:
    """A session as an evaluation writes it; in a document its events have numbers, in a line they have the line's."""
    values = [event for one in _history(row) for event in (one if isinstance(one, list) else [one])]
    placed = [(Source(str(source.path), line or number), value) for number, value in enumerate(values, 1)]
    metadata = fields(row.get("metadata"))
    model = text(at(metadata, "llm_config", "model")) or text(metadata.get("model_name"))
    bills = _bills([fields(row.get("metrics"))])
    return session_of(source, Run(id_, Told(model, bills)), _events(source, placed))


def _events(source: SourceFile, values: Iterable[tuple[Source, Any]]) -> list[Event]:
    """The events, each with an id that no other has."""
    found: list[Event] = []
    seen: set[str] = set()
    for number, (place, wire) in enumerate(values, 1):
        if not isinstance(wire, dict):
            source.problem("an event is no object", "skipped", place.line)
            continue
        given = wire.get("id")
        id_ = str(given) if type(given) is int or (isinstance(given, str) and given) else ""
        if not id_ or id_ in seen:
            id_ = f"event-{number}"
        while id_ in seen:
            id_ += "-"
        seen.add(id_)
        found.append(Event(id_, wire, place, timestamp(wire.get("timestamp"))))
    return found


# Folders


def _stored(source: SourceFile) -> Session:
    """A session until 0.62: numbered files, and what is known of them in a file beside their folder."""
    folder = source.path.parent
    metadata = _load(source, folder.parent / "metadata.json", is_needed=False)
    values, files = _files(source, folder)
    beside = (folder.parent / "metadata.json",) if metadata else ()
    run = Run(
        text(metadata.get("conversation_id")) or folder.parent.name,
        title=text(metadata.get("title")),
        git_branch=text(metadata.get("selected_branch")),
        # A new event is a new file: the folder tells.
        files=tuple(map(str, (*beside, folder, *(path for path in files if path != source.path)))),
    )
    return session_of(source, run, _events(source, values))


def _conversation(source: SourceFile, depth: int, parent: str = "") -> Session:
    """A conversation since 1.0, with its sub-agents."""
    folder = source.path.parent
    state = fields(source.take_document())
    values, files = _files(source, folder / "events")
    stats = fields(at(state, "stats", "usage_to_metrics")) or fields(at(state, "stats", "service_to_metrics"))
    run = Run(
        text(state.get("id")) or folder.name,
        Told(text(at(state, "agent", "llm", "model")), _bills(map(fields, stats.values()))),
        title=text(at(state, "tags", "title")),
        project=text(at(state, "workspace", "working_dir")),
        head=text(state.get("leaf_event_id")),
        is_empty=state.get("head_is_empty") is True,
        parent=parent,
        files=tuple(map(str, files)),
        depth=depth,
    )
    session = session_of(source, run, _events(source, values))
    children = list(_below(source, session.id, depth)) if depth < DEEPEST else []
    return structs.replace(
        session, problems=tuple(source.problems), children=(*session.children, *_started(session, children))
    )


def _below(source: SourceFile, parent: str, depth: int) -> Iterator[Session]:
    """The sub-agents in the folder of a conversation."""
    folder = source.path.parent
    for path in sorted(folder.glob(f"subagents/*/{BASE}")):
        try:
            if path.resolve().is_relative_to(folder.resolve()):
                yield _conversation(SourceFile(path, source.limits), depth + 1, parent)
        except (ReadError, OSError) as error:
            source.problem(f"a sub-agent's conversation cannot be read: {error}", "left out")


def _files(source: SourceFile, folder: Path) -> tuple[list[tuple[Source, Any]], list[Path]]:
    """The events of a folder in order, and their files."""
    try:
        named = [(int(found[1]), path) for path in folder.iterdir() if (found := _FILE.fullmatch(path.name))]
    except OSError:
        named = []
    paths = [path for _, path in sorted(named)]
    values = ((path, _load(source, path)) for path in paths)
    return [(Source(str(path), 1), value) for path, value in values if value], paths


def _load(source: SourceFile, path: Path, *, is_needed: bool = True) -> dict[str, Any]:
    try:
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= source.limits.line else b""
        value = load(data)
    except (OSError, ValueError, RecursionError):
        value = None
    if is_needed and not isinstance(value, dict):
        source.problems.append(Problem("an event is not a JSON object, or torn, or too large", "skipped", str(path), 1))
    return fields(value)


def _started(session: Session, children: Iterable[Session]) -> Iterator[Session]:
    """Sub-agents, each with the call that holds its prompt."""
    calls: dict[str, list[str]] = {}
    for call in (call for message in session.messages() for call in message.calls):
        for prompt in _prompts(call):
            calls.setdefault(prompt.strip(), []).append(call.id)
    for child in children:
        prompt = next((message.text.strip() for message in child.messages() if message.role == "user"), "")
        waiting = calls.get(prompt) or [""]
        yield structs.replace(child, call_id=waiting.pop(0))


def _prompts(call: ToolCall) -> list[str]:
    if call.name not in ("task", "delegate"):
        return []
    arguments = load_fields(call.arguments)
    told = [arguments.get("prompt"), *fields(arguments.get("tasks")).values()]
    return [prompt for prompt in told if isinstance(prompt, str)]


def _bills(metrics: Iterable[dict[str, Any]]) -> dict[str, Usage]:
    """The bill of each response, by its id."""
    bills: dict[str, Usage] = {}
    for row in (fields(row) for one in metrics for row in items(one.get("token_usages"))):
        details = {"reasoning_tokens": row.get("reasoning_tokens")}
        cached = {"cache_read_input_tokens": row.get("cache_read_tokens")}
        written = {"cache_creation_input_tokens": row.get("cache_write_tokens")}
        usage = chat_usage({**row, **cached, **written, "completion_tokens_details": details})
        if usage and (id_ := text(row.get("response_id"))):
            bills[id_] = usage
    return bills


# Where it is found


def sniff(source: SourceFile) -> int:
    """Events, alone, in a row, or under `history`; a folder's state; the first file of a folder of events."""
    if source.path.parent.name == "events":  # the first of them stands for all
        return 3 if _is_first(source.path) and is_event(source.document) else 0
    head = next(iter(source.head), None)
    value = source.document if head is None or not isinstance(head, dict) else head
    if isinstance(value, list):
        return 3 if any(map(is_event, value[:3])) else 0
    if not isinstance(value, dict):
        return 0
    if source.path.name == BASE:
        return 3 if {"agent", "workspace", "id"} <= value.keys() else 0
    inner = [one for event in _history(value)[:3] for one in (event if isinstance(event, list) else [event])]
    return 3 if any(map(is_event, [value, *inner])) else 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:
    """The folders of both generations, on every system below the home directory."""
    root = Path(environment.get("OPENHANDS_PERSISTENCE_DIR") or home / ".openhands")
    conversations = Path(environment.get("OPENHANDS_CONVERSATIONS_DIR") or root / "conversations")
    stores = [Path(environment.get("FILE_STORE_PATH") or home / ".openhands"), home / ".openhands-state"]
    sessions = [Home(store / "sessions", f"*/events/{FIRST}") for store in stores]
    return [Home(conversations, f"*/{BASE}"), *sessions]


FORMAT = TranscriptFormat(
    NAME,
    "OpenHands",
    sniff,
    read,
    homes,
    resume="openhands --resume {id}",
    layouts="exports, outputs of evaluations, and folders of events: `sessions/` and, since 1.0, `conversations/`",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "rewinds", "compactions"),
    seen="0.6 to 0.35; 1.x by its source",
)
