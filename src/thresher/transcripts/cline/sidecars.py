"""What stands beside a Cline conversation: the facts of its task, the bills of its requests, what was left out since.

A task's folder holds `ui_messages.json` (what its user saw, with a bill for each request), `task_metadata.json` and,
from Roo, `history_item.json`; Cline keeps the facts of all tasks in one list, `state/taskHistory.json`. That list is no
part of `Session.files`: it changes with every turn of any task, and what is taken from it does not. A session of the
Cline CLI has its facts in `<id>.json`, and in `<id>.compaction.json` what the model is shown instead of its first
messages.
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
"""A task's conversation, and what it was called at first."""
SESSION_FILE_SUFFIX = ".messages.json"


class ClineRequest(NamedTuple):
    """One request as the user saw it."""

    time: datetime | None
    last_message_index: int | None
    """The index of the last message before it."""
    usage: Usage | None
    model: str


class ClineCompaction(NamedTuple):
    """What the model is shown instead of a session's first messages."""

    file: Path
    replaced_count: int
    """How many there are of them."""
    rows: list[Any]


class ClineSidecars(NamedTuple):
    """All that is told beside a conversation."""

    project: str = ""
    title: str = ""
    parent: str = ""
    is_child: bool = False
    """Whether the parent started it: it may as well be a fork."""
    version: str = ""
    model: str = ""
    models: tuple[tuple[datetime, str], ...] = ()
    """Which model was asked, from which time on."""
    requests: tuple[ClineRequest, ...] = ()
    last_deleted_number: int = 0
    """The number of the last message that requests leave out, behind the first two."""
    compaction: ClineCompaction | None = None
    files: tuple[str, ...] = ()

    def model_at(self, time: datetime | None) -> str:
        """The model that was asked then."""
        if time is None or not self.models:
            return self.model
        place = bisect_right(self.models, time, key=itemgetter(0))
        return self.models[max(place - 1, 0)][1]


def read_cline_sidecars(source: SourceFile) -> ClineSidecars:
    """Look for what stands beside a file, if it is called as its agent calls it."""
    name = source.path.name
    if name in TASK_FILES:
        return _read_task_sidecars(source)
    return _read_session_sidecars(source) if name.endswith(SESSION_FILE_SUFFIX) else ClineSidecars()


def _read_task_sidecars(source: SourceFile) -> ClineSidecars:
    folder, files = source.path.parent, list[str]()
    seen = [
        row for row in map(as_dict, as_list(_read_sidecar_document(source, folder / "ui_messages.json", files))) if row
    ]
    metadata = as_dict(_read_sidecar_document(source, folder / "task_metadata.json", files))
    own = as_dict(_read_sidecar_document(source, folder / "history_item.json", files))
    listed = folder.parent.parent / "state" / "taskHistory.json"
    facts = _read_task_history(source.limits, listed, *_file_stamp(listed)).get(folder.name, {}) | own
    ranges = [value_at(row, "conversationHistoryDeletedRange") for row in (facts, *seen)]
    usage = map(as_dict, list_at(metadata, "model_usage"))
    used = [(since, text_at(row, "model_id")) for row in usage if (since := parse_time(row.get("ts")))]
    hosts = [text_at(row, "cline_version") for row in list_at(metadata, "environment_history")]
    folders = ("workspace", "cwdOnTaskInitialization", "shadowGitConfigWorkTree")
    return ClineSidecars(
        project=next(filter(None, (text_at(facts, key) for key in folders)), ""),
        title=first_text(facts, "title", "task"),
        parent=text_at(facts, "parentTaskId"),
        is_child=bool(text_at(facts, "parentTaskId")),
        version=next(filter(None, reversed(hosts)), ""),
        model=text_at(facts, "modelId"),
        models=tuple(sorted(used)),
        requests=tuple(_parse_request(row) for row in seen if row.get("say") == "api_req_started"),
        last_deleted_number=next((as_count(as_list(one)[-1]) + 1 for one in reversed(ranges) if as_list(one)), 0),
        files=tuple(files),
    )


def _parse_request(row: dict[str, Any]) -> ClineRequest:
    told = load_json_object(text_at(row, "text"))
    given, output = count_at(told, "tokensIn"), count_at(told, "tokensOut")
    read, written = count_at(told, "cacheReads"), count_at(told, "cacheWrites")
    if told.get("apiProtocol") == "openai":  # there, what a cache served is a share of what was given
        given = max(given - read - written, 0)
    usage = Usage(given, output, read, written) if given or output or read or written else None
    last = row.get("conversationHistoryIndex")
    model = text_at(row, "modelInfo", "modelId")
    return ClineRequest(parse_time(row.get("ts")), last if type(last) is int else None, usage, model)


def _read_session_sidecars(source: SourceFile) -> ClineSidecars:
    folder, files = source.path.parent, list[str]()
    stem = source.path.name.removesuffix(SESSION_FILE_SUFFIX)
    # A sub-agent has no facts of its own: those of the session that started it stand beside its messages.
    own = as_dict(_read_sidecar_document(source, folder / f"{stem}.json", files))
    facts = own or as_dict(_read_sidecar_document(source, folder / f"{folder.name}.json", files))
    state = as_dict(_read_sidecar_document(source, folder / f"{stem}.compaction.json", files))
    shown = list_at(state, "messages")
    return ClineSidecars(
        project=first_text(facts, "cwd", "workspace_root"),
        title=(text_at(facts, "metadata", "title") or text_at(facts, "prompt")) if own else "",
        parent=text_at(own, "metadata", "fork", "forkedFromSessionId"),
        version=text_at(facts, "metadata", "sessionHistoryOrigin", "version"),
        compaction=ClineCompaction(folder / f"{stem}.compaction.json", count_at(state, "source_message_count"), shown)
        if shown
        else None,
        files=tuple(files),
    )


def _read_sidecar_document(source: SourceFile, path: Path, files: list[str]) -> Any:
    """A JSON file of the same folder; one that cannot be read is told."""
    if not path.is_file():
        return None
    files.append(str(path))
    try:
        document = SourceFile(path, source.limits).document
    except ReadError:
        document = None
    if document is None:
        source.report(f"`{path.name}` beside it cannot be read", "read without what it tells")
    return document


def _file_stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=8)
def _read_task_history(limits: ReadLimits, path: Path, _time: int, size: int) -> dict[str, dict[str, Any]]:
    """The facts of all tasks by their ids: one reading serves them all, until the list changes."""
    try:
        rows = as_list(SourceFile(path, limits).document) if size else []
    except ReadError:
        return {}
    return {id_: row for row in map(as_dict, rows) if (id_ := text_at(row, "id"))}


def match_requests_to_answers(
    requests: Sequence[ClineRequest], answers: Sequence[tuple[int, datetime | None]]
) -> dict[int, ClineRequest]:
    """Which request each answer came from, by the answer's number.

    By the times of both where the conversation has them; else by how many messages there were; else in order, where
    there is one for each. Of several for one answer the last with a bill counts: the others were tried again.
    """
    found: dict[int, ClineRequest] = {}
    numbers, times = [number for number, _ in answers], [time for _, time in answers if time]
    for request in requests:
        if len(times) == len(answers):
            place = bisect_left(times, request.time) if request.time else len(answers)
        elif request.last_message_index is not None:
            place = bisect_right(numbers, request.last_message_index + 1)
        else:
            break
        if place < len(answers) and (request.usage or numbers[place] not in found):
            found[numbers[place]] = request
    if not found and len(requests) == len(answers):
        return dict(zip(numbers, requests, strict=True))
    return found
