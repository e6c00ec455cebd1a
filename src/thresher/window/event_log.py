"""What a window has to tell: events, to whoever listens, and failures of helpers, which stop nothing."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from thresher.window.conversation import WindowConversation
from thresher.window.events import Trigger, WindowEvent
from thresher.window.ledger import LedgerError
from thresher.window.telemetry import add_span_event

MAX_EVENTS = 10_000
"""Events that are remembered."""


class EventLog:
    """Keeps the events, and hands them on."""

    def __init__(self, on_event: Callable[[WindowEvent], None] | None) -> None:
        self._on_event = on_event
        self.events: list[WindowEvent] = []
        self.failures: list[str] = []
        """What a summariser or a judge failed at, perhaps in the background: told with the next call."""

    def publish(self, event: WindowEvent) -> None:
        """Hand an event on; a listener that fails stops nothing."""
        self.events.append(event)
        del self.events[:-MAX_EVENTS]
        add_span_event(event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - it is the user's, and the loop shall go on
            warnings.warn(f"`on_event` failed: {error!r}", stacklevel=4)

    def report(self, trigger: Trigger, why: str, thread: WindowConversation | None, model: str, now: float) -> None:
        """Tell of something that changes nothing in what is sent."""
        tokens, calls = (thread.tokens, thread.calls) if thread is not None else (0, 0)
        event = WindowEvent(
            trigger=trigger,
            reason=why,
            time=now,
            model=model,
            calls_before=calls,
            tokens_before=tokens,
            tokens_after=tokens,
        )
        self.publish(event)

    def report_failures(self, thread: WindowConversation, model: str, now: float) -> None:
        """Tell what helpers failed at since the last call."""
        while self.failures:
            self.report("helper", self.failures.pop(0), thread, model, now)

    @contextmanager
    def catch_ledger_errors(self, thread: WindowConversation | None, model: str, now: float) -> Iterator[None]:
        """What the ledger cannot keep is told, and stops nothing."""
        try:
            yield
        except LedgerError as error:
            self.report("store", str(error), thread, model, now)
