"""`Timeline`: the files of a session, and their content after any turn.

One pass over the session produces the events, the gaps and the final states. The state at an earlier turn is rebuilt
from the actions on that file and its predecessors, so no text is stored twice.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import assert_never

from thresher.errors import OptionError
from thresher.model import Session
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
from thresher.timeline.tool_steps import ToolStep, collect_tool_steps

NAMED_IN_ERRORS = 8


class Timeline:
    """The files of one session over its turns, including sub-agents. No file is opened."""

    def __init__(self, session: Session) -> None:
        """Process the session once."""
        self.session = session
        self._tracker = FileStateTracker()
        self._resolver = ActionResolver(self._current_text)
        self._events: list[FileEvent] = []
        self.applied_actions: list[tuple[int, FileAction]] = []
        """Every action that happened or may have happened, with its turn."""
        gone_through = collect_tool_steps(session)
        self.turns = gone_through.turns
        """Number of model calls in the session."""
        for step in gone_through.steps:
            for taken in self._resolver.resolve_step(step):
                self._apply_step_action(step, taken)
        for path in self._tracker.files:
            self._tracker.refresh_file(path)

    def _apply_step_action(self, step: ToolStep, taken: ResolvedAction) -> None:
        added = removed = 0
        if not taken.failed:
            # Turns never decrease: a sub-agent's steps may appear late.
            turn = max(step.turn, self.applied_actions[-1][0] if self.applied_actions else 0)
            added, removed = self._tracker.apply_action(len(self.applied_actions), turn, taken.action)
            self.applied_actions.append((turn, taken.action))
        self._events += _make_events(step, taken, added, removed)

    def _current_text(self, path: str) -> str | None:
        known = self._tracker.files.get(path)
        return known.best_known.text if known is not None and known.best_known.is_whole else None

    def files(self) -> tuple[FileActivity, ...]:
        """Return every file with an event, in order of the first one."""
        found: dict[str, list[FileEvent]] = {}
        for event in self._events:
            if not event.failed:
                found.setdefault(event.path, []).append(event)
                if event.to:
                    found.setdefault(event.to, []).append(event)
        return tuple(_summarize_file(path, events, self._tracker.files[path]) for path, events in found.items())

    def events(self, path: str = "") -> tuple[FileEvent, ...]:
        """Return all events, or those of one file, in order and including failed calls."""
        if not path:
            return tuple(self._events)
        full = self.resolve_path(path)
        return tuple(event for event in self._events if full in (event.path, event.to))

    def resolve_path(self, said: str) -> str:
        """Return the path of the only file that matches a path or the end of one.

        `./name` refers to the session's folder. Raises `OptionError` if several files match, or none.
        """
        here = normalize_path(said, self.session.project)
        paths = {event.path for event in self._events} | {event.to for event in self._events if event.to}
        if here in paths and (said.startswith(("./", "/", "~")) or here == said):
            return here
        wanted = normalize_path(said)
        fitting = sorted(path for path in paths if path == wanted or path.endswith(f"/{wanted}")) if wanted else []
        if len(fitting) == 1:
            return fitting[0]
        if not fitting:
            raise OptionError(
                f"nothing happened to a file called `{said}` in this session; `files` lists those it touched"
            )
        named = ", ".join(f"`{path}`" for path in fitting[:NAMED_IN_ERRORS])
        raise OptionError(f"`{said}` could be {len(fitting)} files: {named}; say more of the path")

    def file_state_at(self, path: str, *, turn: int | None = None) -> FileState:
        """Return a file as of a turn (default: the last one): exact, or with its gaps."""
        full = self.resolve_path(path)
        last = self.turns if turn is None else turn
        book = FileStateTracker()
        for order, number, action in self._related_actions(full):
            if number > last:
                break
            book.apply_action(order, number, action)
        order = bisect_right(self.applied_actions, last, key=lambda one: one[0]) - 1
        known = book.refresh_file(full)
        gaps = tuple(dict.fromkeys(self._gaps(known, full, order, last)))
        if known.is_deleted:
            return FileState(full, last, None, not gaps, gaps)
        text = known.best_known.text if known.best_known.runs else None
        return FileState(full, last, text, known.fresh.is_whole and not gaps, gaps)

    def _gaps(self, known: FileKnowledge, path: str, order: int, turn: int) -> Iterator[str]:
        yield from self._tracker.files[path].gap_reasons_at(order)
        if known.is_deleted or known.fresh.is_whole:
            return
        if not known.best_known.runs:
            yield f"nothing is known of its text up to turn {turn}"
        else:
            yield from known.best_known.describe_unknown()

    def _related_actions(self, path: str) -> Iterator[tuple[int, int, FileAction]]:
        """Yield the actions on a file and its predecessors, each with its number among all actions and its turn."""
        kin = {path}
        for _, action in reversed(self.applied_actions):
            if isinstance(action, FileMoveAction | FileCopyAction) and action.to in kin:
                kin.add(action.path)
        for order, (turn, action) in enumerate(self.applied_actions):
            if isinstance(action, TreeInvalidation) or action.path in kin:
                yield order, turn, action

    def diff(self, path: str, *, since: int = 0, until: int | None = None) -> str:
        """Return the unified diff of a file between two turns; empty if it did not change.

        If its text at the first turn is unknown, the diff starts from the first known text before a change.
        """
        full = self.resolve_path(path)
        after = self.file_state_at(full, turn=until)
        before = self.file_state_at(full, turn=since)
        old = before.text if before.text is not None or before.exact else self._first_text(full, since, after.turn)
        return format_unified_diff(old, after.text, relative_to_folder(full, self.session.project))

    def _first_text(self, path: str, since: int, until: int) -> str | None:
        """Return the text before the first change after a turn, if known."""
        book = FileStateTracker()
        for order, turn, action in self._related_actions(path):
            changes = isinstance(action, FileWriteAction | FileEditAction | FileDeleteAction) and action.path == path
            known = book.files.get(path)
            if turn > until or (turn > since and (changes or (known is not None and known.best_known.is_whole))):
                break
            book.apply_action(order, turn, action)
        known = book.files.get(path)
        return known.best_known.text if known is not None and known.best_known.runs else None


def _make_events(step: ToolStep, taken: ResolvedAction, added: int, removed: int) -> Iterator[FileEvent]:
    """Yield the event of an action; uncertain changes have none."""
    operation: FileOperation
    path, to = getattr(taken.action, "path", ""), ""
    match taken.action:
        case FileReadAction():
            operation = "read"
        case FileWriteAction():
            operation = "write"
        case FileCopyAction():
            operation, path = "write", taken.action.to
        case FileEditAction():
            operation = "edit"
        case FileDeleteAction():
            operation = "delete"
        case FileMoveAction():
            operation, to = "move", taken.action.to
        case UncertainChange() | TreeInvalidation():
            return
        case _:
            assert_never(taken.action)
    when = step.turn, step.message, step.time
    yield FileEvent(*when, operation, path, to, step.reason, step.agent, added, removed, taken.failed)


def _summarize_file(path: str, events: list[FileEvent], known: FileKnowledge) -> FileActivity:
    def number(*operations: FileOperation) -> int:
        return sum(event.operation in operations for event in events)

    turns = [event.turn for event in events]
    return FileActivity(
        path, number("read"), number("edit"), number("write"), min(turns), max(turns), known.is_deleted, known.is_exact
    )
