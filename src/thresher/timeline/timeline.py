"""`Timeline`: the files of a session, and their content after any turn.

One pass over the session produces the events, the gaps and the final states. The state at an earlier turn is rebuilt
from the actions on that file and its predecessors, so no text is stored twice.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from thresher.errors import OptionError
from thresher.model import History, Session
from thresher.model.paths import normalize_path
from thresher.timeline.actions import (
    FileAction,
    FileCopyAction,
    FileDeleteAction,
    FileEditAction,
    FileMoveAction,
    FileReadAction,
    FileWriteAction,
    TreeInvalidation,
    UncertainChange,
)
from thresher.timeline.diff import format_unified_diff
from thresher.timeline.file_states import FileKnowledge, FileStateTracker
from thresher.timeline.path_index import relative_to_folder
from thresher.timeline.records import FileActivity, FileEvent, FileOperation, FileState
from thresher.timeline.resolve import ActionResolver, ResolvedAction
from thresher.timeline.tool_steps import ToolStep, collect_tool_steps, to_session

NAMED_IN_ERRORS = 8


class Timeline:
    """The files of one session or history over its turns, including sub-agents. It never opens a file."""

    def __init__(self, session: Session | History) -> None:
        """Process the session once."""
        self.session = session = to_session(session)
        self._tracker = FileStateTracker()
        self._resolver = ActionResolver(self._current_text)
        self._events: list[FileEvent] = []
        self.applied_actions: list[tuple[int, FileAction]] = []
        """Every action that happened or may have happened, with its turn."""
        steps, self.turns = collect_tool_steps(session)
        """Number of model calls in the session."""
        for step in steps:
            for resolved in self._resolver.resolve_step(step):
                self._apply_step_action(step, resolved)
        for path in self._tracker.files:
            self._tracker.refresh_file(path)

    def _apply_step_action(self, step: ToolStep, resolved: ResolvedAction) -> None:
        added = removed = 0
        if not resolved.failed:
            # Keep turns from decreasing, because a sub-agent's steps may appear late.
            turn = max(step.turn, self.applied_actions[-1][0] if self.applied_actions else 0)
            added, removed = self._tracker.apply_action(len(self.applied_actions), turn, resolved.action)
            self.applied_actions.append((turn, resolved.action))
        self._events += _make_events(step, resolved, added, removed)

    def _current_text(self, path: str) -> str | None:
        file = self._tracker.files.get(path)
        return file.best_known.text if file is not None and file.best_known.is_whole else None

    def files(self) -> tuple[FileActivity, ...]:
        """Return every file that a successful call touched, in order of the first event."""
        events_by_path: dict[str, list[FileEvent]] = {}
        for event in self._events:
            for path in filter(None, (event.path, event.to) if not event.failed else ()):
                events_by_path.setdefault(path, []).append(event)
        files = self._tracker.files
        return tuple(_summarize_file(path, events, files[path]) for path, events in events_by_path.items())

    def events(self, path: str = "") -> tuple[FileEvent, ...]:
        """Return all events, or the events of one file, in order and including failed calls."""
        if not path:
            return tuple(self._events)
        full = self.resolve_path(path)
        return tuple(event for event in self._events if full in (event.path, event.to))

    def resolve_path(self, name: str) -> str:
        """Return the path of the only file whose path equals `name` or ends with it.

        `./name` refers to the session's folder. Raises `OptionError` if several files match, or none.
        """
        full = normalize_path(name, self.session.project)
        paths = {event.path for event in self._events} | {event.to for event in self._events if event.to}
        if full in paths and (name.startswith(("./", "/", "~")) or full == name):
            return full
        suffix = normalize_path(name)
        matches = sorted(path for path in paths if path == suffix or path.endswith(f"/{suffix}")) if suffix else []
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise OptionError(f"this session touched no file `{name}`. List its files with `thresher files SESSION`.")
        listed = ", ".join(f"`{path}`" for path in matches[:NAMED_IN_ERRORS])
        raise OptionError(f"`{name}` matches {len(matches)} files: {listed}. Use a longer part of the path.")

    def file_state_at(self, path: str, *, turn: int | None = None) -> FileState:
        """Return the state of a file after a turn (default: the last turn), with the gaps if it is not exact."""
        full = self.resolve_path(path)
        last = self.turns if turn is None else turn
        tracker = FileStateTracker()
        for order, number, action in self._related_actions(full):
            if number > last:
                break
            tracker.apply_action(order, number, action)
        order = bisect_right(self.applied_actions, last, key=lambda applied: applied[0]) - 1
        file = tracker.refresh_file(full)
        gaps = tuple(dict.fromkeys(self._gaps(file, order, last)))
        if file.is_deleted:
            return FileState(full, last, None, not gaps, gaps)
        text = file.best_known.text if file.best_known.runs else None
        return FileState(full, last, text, file.fresh.is_whole and not gaps, gaps)

    def _gaps(self, file: FileKnowledge, order: int, turn: int) -> Iterator[str]:
        yield from self._tracker.files[file.path].gap_reasons_at(order)
        if file.is_deleted or file.fresh.is_whole:
            return
        if not file.best_known.runs:
            yield f"its text is unknown up to turn {turn}"
        else:
            yield from file.best_known.describe_unknown()

    def _related_actions(self, path: str) -> Iterator[tuple[int, int, FileAction]]:
        """Yield the actions on a file and its predecessors, each with its number among all actions and its turn."""
        related = {path}
        for _, action in reversed(self.applied_actions):
            if isinstance(action, FileMoveAction | FileCopyAction) and action.to in related:
                related.add(action.path)
        for order, (turn, action) in enumerate(self.applied_actions):
            if isinstance(action, TreeInvalidation) or action.path in related:
                yield order, turn, action

    def diff(self, path: str, *, since: int = 0, until: int | None = None) -> str:
        """Return the unified diff of a file between two turns; empty if it did not change.

        If the text at the first turn is unknown, the diff starts from the first known text before a change.
        """
        full = self.resolve_path(path)
        after = self.file_state_at(full, turn=until)
        before = self.file_state_at(full, turn=since)
        old = before.text if before.text is not None or before.exact else self._first_text(full, since, after.turn)
        return format_unified_diff(old, after.text, relative_to_folder(full, self.session.project))

    def _first_text(self, path: str, since: int, until: int) -> str | None:
        """Return the text before the first change after a turn, if known."""
        tracker = FileStateTracker()
        file: FileKnowledge | None = None
        for order, turn, action in self._related_actions(path):
            changes = isinstance(action, FileWriteAction | FileEditAction | FileDeleteAction) and action.path == path
            is_known = file is not None and file.best_known.is_whole
            if turn > until or (turn > since and (changes or is_known)):
                break
            tracker.apply_action(order, turn, action)
            file = tracker.files.get(path)
        return file.best_known.text if file is not None and file.best_known.runs else None


def _make_events(step: ToolStep, resolved: ResolvedAction, added: int, removed: int) -> Iterator[FileEvent]:
    """Yield the event of an action; uncertain changes have none."""
    operation: FileOperation
    path, to = getattr(resolved.action, "path", ""), ""
    match resolved.action:
        case FileReadAction():
            operation = "read"
        case FileWriteAction():
            operation = "write"
        case FileCopyAction():
            operation, path = "write", resolved.action.to
        case FileEditAction():
            operation = "edit"
        case FileDeleteAction():
            operation = "delete"
        case FileMoveAction():
            operation, to = "move", resolved.action.to
        case UncertainChange() | TreeInvalidation():
            return
        case _:
            assert_never(resolved.action)
    when = step.turn, step.message, step.time
    yield FileEvent(*when, operation, path, to, step.reason, step.agent, added, removed, resolved.failed)


def _summarize_file(path: str, events: list[FileEvent], file: FileKnowledge) -> FileActivity:
    counts = Counter(event.operation for event in events)
    turns = [event.turn for event in events]
    numbers = counts["read"], counts["edit"], counts["write"], min(turns), max(turns)
    return FileActivity(path, *numbers, file.is_deleted, file.is_exact)
