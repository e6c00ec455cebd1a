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
from thresher.formats.loose import at, count, fields, items, text
from thresher.formats.source import Limits, SourceFile
from thresher.formats.transcript import timestamp
from thresher.model import Usage
from thresher.model.jsontext import load_fields

TASK_FILES = ("api_conversation_history.json", "claude_messages.json")
"""A task's conversation, and what it was called at first."""
SESSION_FILE = ".messages.json"


class Request(NamedTuple):
    """One request as the user saw it."""

    time: datetime | None
    last: int | None
    """The index of the last message before it."""
    usage: Usage | None
    model: str


class Compaction(NamedTuple):
    """What the model is shown instead of a session's first messages."""

    file: Path
    replaced: int
    """How many there are of them."""
    rows: list[Any]


class Beside(NamedTuple):
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
    requests: tuple[Request, ...] = ()
    deleted: int = 0
    """The number of the last message that requests leave out, behind the first two."""
    compaction: Compaction | None = None
    files: tuple[str, ...] = ()

    def model_at(self, time: datetime | None) -> str:
        """The model that was asked then."""
        if time is None or not self.models:
            return self.model
        place = bisect_right(self.models, time, key=itemgetter(0))
        return self.models[max(place - 1, 0)][1]


def beside(source: SourceFile) -> Beside:
    """Look for what stands beside a file, if it is called as its agent calls it."""
    name = source.path.name
    if name in TASK_FILES:
        return _task(source)
    return _session(source) if name.endswith(SESSION_FILE) else Beside()


def _task(source: SourceFile) -> Beside:
    folder, files = source.path.parent, list[str]()
    seen = [row for row in map(fields, items(_document(source, folder / "ui_messages.json", files))) if row]
    metadata = fields(_document(source, folder / "task_metadata.json", files))
    own = fields(_document(source, folder / "history_item.json", files))
    listed = folder.parent.parent / "state" / "taskHistory.json"
    facts = _listed(source.limits, listed, *_stamp(listed)).get(folder.name, {}) | own
    ranges = [fields(row).get("conversationHistoryDeletedRange") for row in (facts, *seen)]
    usage = map(fields, items(metadata.get("model_usage")))
    used = [(since, text(row.get("model_id"))) for row in usage if (since := timestamp(row.get("ts")))]
    hosts = [text(fields(row).get("cline_version")) for row in items(metadata.get("environment_history"))]
    folders = ("workspace", "cwdOnTaskInitialization", "shadowGitConfigWorkTree")
    return Beside(
        project=next(filter(None, (text(facts.get(key)) for key in folders)), ""),
        title=text(facts.get("title")) or text(facts.get("task")),
        parent=text(facts.get("parentTaskId")),
        is_child=bool(text(facts.get("parentTaskId"))),
        version=next(filter(None, reversed(hosts)), ""),
        model=text(facts.get("modelId")),
        models=tuple(sorted(used)),
        requests=tuple(_request(row) for row in seen if row.get("say") == "api_req_started"),
        deleted=next((count(items(one)[-1]) + 1 for one in reversed(ranges) if items(one)), 0),
        files=tuple(files),
    )


def _request(row: dict[str, Any]) -> Request:
    told = load_fields(text(row.get("text")))
    given, output = count(told.get("tokensIn")), count(told.get("tokensOut"))
    read, written = count(told.get("cacheReads")), count(told.get("cacheWrites"))
    if told.get("apiProtocol") == "openai":  # there, what a cache served is a share of what was given
        given = max(given - read - written, 0)
    usage = Usage(given, output, read, written) if given or output or read or written else None
    last = row.get("conversationHistoryIndex")
    model = text(at(row, "modelInfo", "modelId"))
    return Request(timestamp(row.get("ts")), last if type(last) is int else None, usage, model)


def _session(source: SourceFile) -> Beside:
    folder, files = source.path.parent, list[str]()
    stem = source.path.name.removesuffix(SESSION_FILE)
    # A sub-agent has no facts of its own: those of the session that started it stand beside its messages.
    own = fields(_document(source, folder / f"{stem}.json", files))
    facts = own or fields(_document(source, folder / f"{folder.name}.json", files))
    state = fields(_document(source, folder / f"{stem}.compaction.json", files))
    shown = items(state.get("messages"))
    return Beside(
        project=text(facts.get("cwd")) or text(facts.get("workspace_root")),
        title=(text(at(facts, "metadata", "title")) or text(facts.get("prompt"))) if own else "",
        parent=text(at(own, "metadata", "fork", "forkedFromSessionId")),
        version=text(at(facts, "metadata", "sessionHistoryOrigin", "version")),
        compaction=Compaction(folder / f"{stem}.compaction.json", count(state.get("source_message_count")), shown)
        if shown
        else None,
        files=tuple(files),
    )


def _document(source: SourceFile, path: Path, files: list[str]) -> Any:
    """A JSON file of the same folder; one that cannot be read is told."""
    if not path.is_file():
        return None
    files.append(str(path))
    try:
        document = SourceFile(path, source.limits).document
    except ReadError:
        document = None
    if document is None:
        source.problem(f"`{path.name}` beside it cannot be read", "read without what it tells")
    return document


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=8)
def _listed(limits: Limits, path: Path, _time: int, size: int) -> dict[str, dict[str, Any]]:
    """The facts of all tasks by their ids: one reading serves them all, until the list changes."""
    try:
        rows = items(SourceFile(path, limits).document) if size else []
    except ReadError:
        return {}
    return {id_: row for row in map(fields, rows) if (id_ := text(row.get("id")))}


def bills(requests: Sequence[Request], answers: Sequence[tuple[int, datetime | None]]) -> dict[int, Request]:
    """Which request each answer came from, by the answer's number.

    By the times of both where the conversation has them; else by how many messages there were; else in order, where
    there is one for each. Of several for one answer the last with a bill counts: the others were tried again.
    """
    found: dict[int, Request] = {}
    numbers, times = [number for number, _ in answers], [time for _, time in answers if time]
    for request in requests:
        if len(times) == len(answers):
            place = bisect_left(times, request.time) if request.time else len(answers)
        elif request.last is not None:
            place = bisect_right(numbers, request.last + 1)
        else:
            break
        if place < len(answers) and (request.usage or numbers[place] not in found):
            found[numbers[place]] = request
    if not found and len(requests) == len(answers):
        return dict(zip(numbers, requests, strict=True))
    return found
