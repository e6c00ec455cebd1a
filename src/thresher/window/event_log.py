"""Log of a window's events. Failures of its summarizer, judge or ledger become events and never stop the loop."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import structs

from thresher.edits import list_targets
from thresher.edits.explain import UNREPORTED_REFUSALS
from thresher.store import short_id
from thresher.window.conversation import WindowConversation, count_shared_items
from thresher.window.events import AppliedReplan, Trigger, WindowEvent
from thresher.window.ledger import LedgerError
from thresher.window.telemetry import add_span_event

MAX_EVENTS = 10_000
"""Maximum number of events in memory."""


class EventLog:
    """Record events and pass each one to a callback."""

    def __init__(self, on_event: Callable[[WindowEvent], None] | None) -> None:
        self._on_event = on_event
        self.events: list[WindowEvent] = []
        self.failures: list[str] = []
        """Failures of a summarizer or a judge. The current or the next call reports them."""
        self._model, self._time = "", 0.0
        self._last_ledger_error: LedgerError | None = None

    def start_call(self, model: str, time: float) -> None:
        """Set the model and the time of the events that follow."""
        self._model, self._time = model, time

    def _publish(self, event: WindowEvent) -> None:
        """Record an event and pass it to the callback; warn if the callback fails."""
        self.events.append(event)
        del self.events[:-MAX_EVENTS]
        add_span_event(event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - user code must not stop the loop
            warnings.warn(f"`on_event` failed: {error!r}", stacklevel=5)

    def report_replan(
        self, change: AppliedReplan, before: WindowConversation, after: WindowConversation, cost: float, read: float
    ) -> None:
        """Report a replan as the change between two states of a conversation; `read` is the price of cached tokens."""
        removed = (target for edit in change.new_edits for target in list_targets(edit))
        refusals = (refusal for refusal in change.plan.refused if refusal.reason not in UNREPORTED_REFUSALS)
        event = WindowEvent(
            trigger=change.trigger,
            reason=change.reason,
            time=self._time,
            model=self._model,
            calls_before=after.calls,
            tokens_before=before.tokens,
            tokens_after=after.tokens,
            first_changed=count_shared_items(before.sent_messages, after.sent_messages),
            cost=cost,
            saving_per_call=read * (before.tokens - after.tokens) / 1_000_000,
            edits=dict(Counter(str(type(edit).__struct_config__.tag) for edit in change.new_edits)),
            removed_ids=tuple(short_id(target.content) for target in removed),
            rejected_edits=tuple(f"{refusal.policy}: {refusal.parts} × {refusal.reason}" for refusal in refusals),
            notes=change.plan.notes,
        )
        self._publish(event)

    def report(self, trigger: Trigger, reason: str, conversation: WindowConversation | None) -> None:
        """Report an event that changes nothing in the request."""
        event = WindowEvent(trigger=trigger, reason=reason, time=self._time, model=self._model)
        if conversation is not None:
            tokens = conversation.tokens
            event = structs.replace(event, calls_before=conversation.calls, tokens_before=tokens, tokens_after=tokens)
        self._publish(event)

    def report_failures(self, conversation: WindowConversation) -> None:
        """Report failures of the summarizer and the judge since the last call of this method."""
        while self.failures:
            self.report("helper", self.failures.pop(0), conversation)

    @contextmanager
    def catch_ledger_errors(self, conversation: WindowConversation | None) -> Iterator[None]:
        """Turn a failure of the ledger into an event."""
        try:
            yield
        except LedgerError as error:
            if error is not self._last_ledger_error:  # the ledger raises one failure for all access during a call
                self.report("store", str(error), conversation)
            self._last_ledger_error = error
