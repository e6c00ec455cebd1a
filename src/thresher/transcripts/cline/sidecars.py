"""Read the files next to a Cline conversation: task facts, usage of requests and compaction state.

A task's folder contains `ui_messages.json` (the messages on the user's screen, with the usage of each request),
`task_metadata.json` and, with Roo, `history_item.json`. Cline also keeps the facts of all tasks in
`state/taskHistory.json`. `Session.files` excludes this file, because every turn of any task changes it.

A session of the Cline CLI has its facts in `<id>.json`. After a compaction, `<id>.compaction.json` contains the
messages that replace the session's first messages.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from thresher.errors import ReadError
from thresher.model import Usage
from thresher.model.jsontext import load_json_object
from thresher.transcripts.base import parse_time
from thresher.transcripts.coerce import as_count, as_dict, as_list, count_at, first_text, list_at, text_at, value_at
from thresher.transcripts.source import ReadLimits, SourceFile

TASK_FILES = ("api_conversation_history.json", "claude_messages.json")
"""Names of a task's conversation file: the current name and the original one."""
SESSION_FILE_SUFFIX = ".messages.json"


class ClineRequest(NamedTuple):
    """A model request, as recorded in the messages on the user's screen."""

    time: datetime | None
    last_message_index: int | None
    """Index of the last message before the request, or None if the index is not recorded."""
    usage: Usage | None
    model: str


class ClineCompaction(NamedTuple):
    """Messages that the model gets instead of a session's first messages."""

    file: Path
    replaced_count: int
    """Number of messages at the start of the session that `rows` replaces."""
    rows: list[Any]


class ClineSidecars(NamedTuple):
    """Facts from the files next to a conversation."""

    project: str = ""
    title: str = ""
    parent: str = ""
    is_child: bool = False
    """True if the parent started this session. A fork has a parent that did not start it."""
    version: str = ""
    model: str = ""
    models: tuple[tuple[datetime, str], ...] = ()
    """Pairs of a time and the name of the model in use from that time on, sorted by time."""
    requests: tuple[ClineRequest, ...] = ()
    last_deleted_number: int = 0
    """Number of the last message that requests no longer include, or 0. Requests keep the first two messages."""
    compaction: ClineCompaction | None = None
    files: tuple[str, ...] = ()

    def model_at(self, time: datetime | None) -> str:
        """Return the model in use at a time."""
        if time is None or not self.models:
            return self.model
        index = bisect_right(self.models, time, key=itemgetter(0))
        return self.models[max(index - 1, 0)][1]

    def match_requests(self, answers: Sequence[tuple[int, datetime | None]]) -> dict[int, ClineRequest]:
        """Return the request of each answer, by the answer's message number.

        Match by time if all answers have a time, else by message index. If nothing matches and there are as many
        requests as answers, match them in order. Several requests for one answer are retries: keep the last one with
        usage.
        """
        matched: dict[int, ClineRequest] = {}
        numbers, times = [number for number, _ in answers], [time for _, time in answers if time]
        for request in self.requests:
            if len(times) == len(answers):
                index = bisect_left(times, request.time) if request.time else len(answers)
            elif request.last_message_index is not None:
                index = bisect_right(numbers, request.last_message_index + 1)
            else:
                break
            if index < len(answers) and (request.usage or numbers[index] not in matched):
                matched[numbers[index]] = request
        if not matched and len(self.requests) == len(answers):
            return dict(zip(numbers, self.requests, strict=True))
        return matched


def read_cline_sidecars(source: SourceFile) -> ClineSidecars:
    """Read the files next to a conversation file. Return no facts for an unknown file name."""
    name = source.path.name
    if name in TASK_FILES:
        return _read_task_sidecars(source)
    return _read_session_sidecars(source) if name.endswith(SESSION_FILE_SUFFIX) else ClineSidecars()


def _read_task_sidecars(source: SourceFile) -> ClineSidecars:
    folder, files = source.path.parent, list[str]()
    ui_messages = [*filter(None, map(as_dict, as_list(_read_sidecar(source, "ui_messages.json", files))))]
    metadata = as_dict(_read_sidecar(source, "task_metadata.json", files))
    own_facts = as_dict(_read_sidecar(source, "history_item.json", files))
    history = folder.parent.parent / "state" / "taskHistory.json"
    facts = _read_task_history(source.limits, history, *_file_stamp(history)).get(folder.name, {}) | own_facts
    ranges = [as_list(value_at(row, "conversationHistoryDeletedRange")) for row in (facts, *ui_messages)]
    model_usage = map(as_dict, list_at(metadata, "model_usage"))
    models = [(since, text_at(row, "model_id")) for row in model_usage if (since := parse_time(row.get("ts")))]
    versions = [text_at(row, "cline_version") for row in list_at(metadata, "environment_history")]
    return ClineSidecars(
        project=first_text(facts, "workspace", "cwdOnTaskInitialization", "shadowGitConfigWorkTree"),
        title=first_text(facts, "title", "task"),
        parent=text_at(facts, "parentTaskId"),
        is_child=bool(text_at(facts, "parentTaskId")),
        version=next(filter(None, reversed(versions)), ""),
        model=text_at(facts, "modelId"),
        models=tuple(sorted(models)),
        requests=tuple(_parse_request(row) for row in ui_messages if row.get("say") == "api_req_started"),
        last_deleted_number=next((as_count(deleted[-1]) + 1 for deleted in reversed(ranges) if deleted), 0),
        files=tuple(files),
    )


def _parse_request(row: dict[str, Any]) -> ClineRequest:
    fields = load_json_object(text_at(row, "text"))
    keys = ("tokensIn", "tokensOut", "cacheReads", "cacheWrites")
    prompt, output, read, written = (count_at(fields, key) for key in keys)
    if fields.get("apiProtocol") == "openai":  # input includes cached tokens
        prompt = max(prompt - read - written, 0)
    usage = Usage(prompt, output, read, written) if prompt or output or read or written else None
    last = row.get("conversationHistoryIndex")
    model = text_at(row, "modelInfo", "modelId")
    return ClineRequest(parse_time(row.get("ts")), last if type(last) is int else None, usage, model)


def _read_session_sidecars(source: SourceFile) -> ClineSidecars:
    folder, files = source.path.parent, list[str]()
    stem = source.path.name.removesuffix(SESSION_FILE_SUFFIX)
    # A sub-agent has no `<id>.json`. Its messages are in the folder of the session that started the sub-agent.
    own_facts = as_dict(_read_sidecar(source, f"{stem}.json", files))
    facts = own_facts or as_dict(_read_sidecar(source, f"{folder.name}.json", files))
    state = as_dict(_read_sidecar(source, f"{stem}.compaction.json", files))
    file, rows = folder / f"{stem}.compaction.json", list_at(state, "messages")
    return ClineSidecars(
        project=first_text(facts, "cwd", "workspace_root"),
        title=(text_at(facts, "metadata", "title") or text_at(facts, "prompt")) if own_facts else "",
        parent=text_at(own_facts, "metadata", "fork", "forkedFromSessionId"),
        version=text_at(facts, "metadata", "sessionHistoryOrigin", "version"),
        compaction=ClineCompaction(file, count_at(state, "source_message_count"), rows) if rows else None,
        files=tuple(files),
    )


def _read_sidecar(source: SourceFile, name: str, files: list[str]) -> Any:
    """Load a JSON file from the conversation's folder and its path to `files`. Report an unreadable file."""
    path = source.path.with_name(name)
    if not path.is_file():
        return None
    files.append(str(path))
    try:
        document = SourceFile(path, source.limits).document
    except ReadError:
        document = None
    if document is None:
        source.report(f"`{name}` in the same folder cannot be read", "its facts are missing")
    return document


def _file_stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=8)
def _read_task_history(limits: ReadLimits, path: Path, _time: int, size: int) -> dict[str, dict[str, Any]]:
    """Return the facts of all tasks by id, cached until the file changes."""
    try:
        rows = as_list(SourceFile(path, limits).document) if size else []
    except ReadError:
        return {}
    return {id_: row for row in map(as_dict, rows) if (id_ := text_at(row, "id"))}
