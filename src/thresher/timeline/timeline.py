"""`Timeline`: what a session did to files, and what they held after any turn.

The session is gone through once; that gives the events, the gaps and the last states. A state at an earlier turn is
made anew from the actions on that file and on those that it was moved from, so that no text is kept twice.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import assert_never

from thresher.errors import OptionError
from thresher.model import Session
from thresher.policies.files import normal_path
from thresher.timeline.actions import Action, Copy, Delete, Doubt, Edit, Move, Read, Sweep, Write
from thresher.timeline.book import Book, Known
from thresher.timeline.comparing import unified
from thresher.timeline.names import within
from thresher.timeline.resolving import Resolver, Taken
from thresher.timeline.steps import Step, walk
from thresher.timeline.values import Event, FileFacts, FileState, Happened

NAMED_IN_ERRORS = 8


class Timeline:
    """The files of one session over its turns, sub-agents' work included. No file is opened."""

    def __init__(self, session: Session) -> None:
        """Go through a session once."""
        self.session = session
        self._book = Book()
        self._resolver = Resolver(self._text_now)
        self._events: list[Event] = []
        self.taken: list[tuple[int, Action]] = []
        """Every action that came to something or may have, with its turn."""
        gone_through = walk(session)
        self.turns = gone_through.turns
        """How many model calls the session has."""
        for step in gone_through.steps:
            for taken in self._resolver.taken(step):
                self._take(step, taken)
        for path in self._book.files:
            self._book.settled(path)

    def _take(self, step: Step, taken: Taken) -> None:
        added = removed = 0
        if not taken.failed:
            # Turns never go back: a sub-agent's work may be told late.
            turn = max(step.turn, self.taken[-1][0] if self.taken else 0)
            added, removed = self._book.take(len(self.taken), turn, taken.action)
            self.taken.append((turn, taken.action))
        self._events += _event(step, taken, added, removed)

    def _text_now(self, path: str) -> str | None:
        known = self._book.files.get(path)
        return known.best.text if known is not None and known.best.is_whole else None

    def files(self) -> tuple[FileFacts, ...]:
        """Every file that something happened to, in order of the first time."""
        found: dict[str, list[Event]] = {}
        for event in self._events:
            if not event.failed:
                found.setdefault(event.path, []).append(event)
                if event.to:
                    found.setdefault(event.to, []).append(event)
        return tuple(_facts(path, events, self._book.files[path]) for path, events in found.items())

    def events(self, path: str = "") -> tuple[Event, ...]:
        """All that happened, or what happened to one file, in order; what failed too."""
        if not path:
            return tuple(self._events)
        full = self.path(path)
        return tuple(event for event in self._events if full in (event.path, event.to))

    def path(self, said: str) -> str:
        """The path of the one file that is called so: a path, or the end of one.

        `./name` is one in the session's folder. Raises `OptionError` where several files are called so, or none.
        """
        here = normal_path(said, self.session.project)
        paths = {event.path for event in self._events} | {event.to for event in self._events if event.to}
        if here in paths and (said.startswith(("./", "/", "~")) or here == said):
            return here
        wanted = normal_path(said)
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
        """A file as it was after a turn, the last one if none is named: exact, or with its gaps named."""
        full = self.path(path)
        last = self.turns if turn is None else turn
        book = Book()
        for order, number, action in self._family(full):
            if number > last:
                break
            book.take(order, number, action)
        order = bisect_right(self.taken, last, key=lambda one: one[0]) - 1
        known = book.settled(full)
        gaps = tuple(dict.fromkeys(self._gaps(known, full, order, last)))
        if known.gone:
            return FileState(full, last, None, not gaps, gaps)
        text = known.best.text if known.best.runs else None
        return FileState(full, last, text, known.fresh.is_whole and not gaps, gaps)

    def _gaps(self, known: Known, path: str, order: int, turn: int) -> Iterator[str]:
        yield from self._book.files[path].gaps_at(order)
        if known.gone or known.fresh.is_whole:
            return
        if not known.best.runs:
            yield f"nothing is known of its text up to turn {turn}"
        else:
            yield from known.best.unknown()

    def _family(self, path: str) -> Iterator[tuple[int, int, Action]]:
        """The actions on a file and on those whose text it took over, each with its number among all and its turn."""
        kin = {path}
        for _, action in reversed(self.taken):
            if isinstance(action, Move | Copy) and action.to in kin:
                kin.add(action.path)
        for order, (turn, action) in enumerate(self.taken):
            if isinstance(action, Sweep) or action.path in kin:
                yield order, turn, action

    def diff(self, path: str, *, since: int = 0, until: int | None = None) -> str:
        """What happened to a file between two turns as a unified diff; empty where it is the same.

        If nothing was known of it at the first turn, it is taken as it was first seen, before it was changed.
        """
        full = self.path(path)
        after = self.file_state_at(full, turn=until)
        before = self.file_state_at(full, turn=since)
        old = before.text if before.text is not None or before.exact else self._first_text(full, since, after.turn)
        return unified(old, after.text, within(full, self.session.project))

    def _first_text(self, path: str, since: int, until: int) -> str | None:
        """What a file held before the first change after a turn, if that came out."""
        book = Book()
        for order, turn, action in self._family(path):
            changes = isinstance(action, Write | Edit | Delete) and action.path == path
            known = book.files.get(path)
            if turn > until or (turn > since and (changes or (known is not None and known.best.is_whole))):
                break
            book.take(order, turn, action)
        known = book.files.get(path)
        return known.best.text if known is not None and known.best.runs else None


def _event(step: Step, taken: Taken, added: int, removed: int) -> Iterator[Event]:
    """What an action is told as; what only may have happened is no event."""
    operation: Happened
    path, to = getattr(taken.action, "path", ""), ""
    match taken.action:
        case Read():
            operation = "read"
        case Write():
            operation = "write"
        case Copy():
            operation, path = "write", taken.action.to
        case Edit():
            operation = "edit"
        case Delete():
            operation = "delete"
        case Move():
            operation, to = "move", taken.action.to
        case Doubt() | Sweep():
            return
        case _:
            assert_never(taken.action)
    when = step.turn, step.message, step.time
    yield Event(*when, operation, path, to, step.why, step.agent, added, removed, taken.failed)


def _facts(path: str, events: list[Event], known: Known) -> FileFacts:
    def number(*operations: Happened) -> int:
        return sum(event.operation in operations for event in events)

    turns = [event.turn for event in events]
    return FileFacts(
        path, number("read"), number("edit"), number("write"), min(turns), max(turns), known.gone, known.is_exact
    )
