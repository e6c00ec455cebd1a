"""What a window has to tell: events, to whoever listens, and failures of helpers, which stop nothing."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from thresher.window.events import Event, Trigger
from thresher.window.ledger import LedgerError
from thresher.window.telemetry import report
from thresher.window.thread import Thread

MOST = 10_000
"""Events that are remembered."""


class Teller:
    """Keeps the events, and hands them on."""

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self._on_event = on_event
        self.events: list[Event] = []
        self.failures: list[str] = []
        """What a summariser or a judge failed at, perhaps in the background: told with the next call."""

    def tell(self, event: Event) -> None:
        """Hand an event on; a listener that fails stops nothing."""
        self.events.append(event)
        del self.events[:-MOST]
        report(event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - it is the user's, and the loop shall go on
            warnings.warn(f"`on_event` failed: {error!r}", stacklevel=4)

    def say(self, trigger: Trigger, why: str, thread: Thread | None, model: str, now: float) -> None:
        """Tell of something that changes nothing in what is sent."""
        tokens, calls = (thread.tokens, thread.calls) if thread is not None else (0, 0)
        event = Event(
            trigger=trigger, why=why, at=now, model=model, call=calls, tokens_before=tokens, tokens_after=tokens
        )
        self.tell(event)

    def say_failures(self, thread: Thread, model: str, now: float) -> None:
        """Tell what helpers failed at since the last call."""
        while self.failures:
            self.say("helper", self.failures.pop(0), thread, model, now)

    @contextmanager
    def safely(self, thread: Thread | None, model: str, now: float) -> Iterator[None]:
        """What the ledger cannot keep is told, and stops nothing."""
        try:
            yield
        except LedgerError as error:
            self.say("store", str(error), thread, model, now)
