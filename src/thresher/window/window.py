"""The window: fits each request of an agent's loop and keeps the prefix that was sent before unchanged.

Each call computes the digests of all rows and processes only the new ones. Edited content stays edited byte for byte,
so the provider's prompt cache still serves it. A replan makes new edits when they pay off, are free, or are necessary.
It is written to the ledger before the request is sent, and every replan causes an event.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, Unpack

from msgspec import structs

from thresher.budget.fitting import resolve_plan_setup
from thresher.dialects import emit, parse
from thresher.dialects.intake import reject_deep_nesting
from thresher.dialects.table import find_dialect, find_vendor_dialect, get_native_dialect
from thresher.errors import OptionError, PlanError
from thresher.model import History, Message, Session
from thresher.model.keep_marks import strip_keep_marks
from thresher.policies import PolicyLike
from thresher.summarize import SummaryRequest
from thresher.tokens import token_weights_for
from thresher.window.cache_state import SentRequest, conversation_key
from thresher.window.conversation import NewContent, WindowConversation, parse_request_prompt
from thresher.window.events import EXTERNAL_REPLAN, WindowEvent
from thresher.window.ledger import EditsByTarget, Ledger, LedgerError, ReplanRecord
from thresher.window.options import WindowOptions
from thresher.window.replanner import Replanner
from thresher.window.request import (
    WindowRequest,
    compute_prefix_digests,
    has_nothing_to_fit,
    is_for_vendor,
    is_one_shot,
    read_request,
    to_epoch_seconds,
)
from thresher.window.sent_rows import SentRows
from thresher.window.usage import parse_provider_usage

M = TypeVar("M")
USAGE_FACT_PREFIX = "usage:"
"""Name of the ledger's fact with the usage of a model, which calibrates the budget."""


class Window(Replanner):
    """Keep a growing conversation within a token budget, and its prefix in the provider's prompt cache."""

    @property
    def events(self) -> list[WindowEvent]:
        """The latest events, newest last."""
        return self._event_log.events

    def fit(self, messages: M, *, at: datetime | float | None = None) -> M:
        """Return the messages or the request body to send; `at` is the time of the call, by default now."""
        if isinstance(messages, Session):
            return structs.replace(messages, segments=(*messages.segments[:-1], self.fit(messages.history, at=at)))
        if isinstance(messages, History):
            return self._fit_history(messages, at)  # type: ignore[return-value]
        with self._lock, self.ledger.attempt_once(), reject_deep_nesting():
            if has_nothing_to_fit(messages):
                return messages
            now = to_epoch_seconds(at)
            request = read_request(messages, self._format, self._request)
            self._configure(request)
            self._event_log.start_call(self._setup.model, now)
            conversation, new_content = self._track_conversation(request, now)
            with self._event_log.catch_ledger_errors(conversation):
                self._refetches.detect_refetches(new_content.messages, conversation.calls)
            if conversation.tokens > self.budget or not self._cache.is_repeat(conversation, now, self.prices.life):
                conversation = self._replan_if_needed(request, conversation, new_content, now)
            self._event_log.report_failures(conversation)
            return self._build_output(request, conversation, now)  # type: ignore[no-any-return]

    def _fit_history(self, history: History, at: datetime | float | None) -> History:
        """Emit a history in its own dialect, fit it, and parse the result."""
        native = (get_native_dialect(owner.pocket.format) for owner in (history, *history) if owner.pocket is not None)
        name = self._format or next((dialect.name for dialect in native if dialect is not None), None)
        name = name or find_vendor_dialect(token_weights_for(history).vendor).name
        body = emit(history, name, body=True)
        fitted = self.fit(body, at=at)
        return history if fitted == body else parse(fitted, name)

    def _track_conversation(self, request: WindowRequest, now: float) -> tuple[WindowConversation, NewContent]:
        """Return the conversation that a request continues, and the new content of the request."""
        last = next((known for known in reversed(self._conversations) if known.is_extended_by(request)), None)
        replan, edits = (last.last_replan, last.edits) if last is not None else (None, {})
        with self._event_log.catch_ledger_errors(last):
            latest = self.ledger.latest_replan(request.prefix_digests)
            replan, edits = latest, self.ledger.active_edits(latest)
        if last is not None and replan == last.last_replan and last.token_weights == self._setup.scale:
            self._switch_to(last, last)
            return last, NewContent(last.extend(request))
        parsed_before = last or (self._conversations[-1] if self._conversations else None)
        conversation = self._build_conversation(request, replan, edits, parsed_before)
        edits = conversation.edits
        self._refetches.record_removed(conversation.original, edits.values())
        key = conversation_key(conversation)
        before = last or next(
            (known for known in reversed(self._conversations) if conversation_key(known) == key), None
        )
        self._switch_to(conversation, before)
        if last is not None and replan != last.last_replan:
            cost = self.prices.request_cost(conversation.tokens, self._cached_tokens(conversation, now))
            cost -= self.prices.request_cost(last.tokens, last.tokens)
            self._event_log.report_replan(EXTERNAL_REPLAN, last, conversation, cost, self.prices.read)
        carried: EditsByTarget = {}
        if last is None and before is not None and not self._is_own_output(before, request):
            carried = {target: edit for target, edit in before.edits.items() if target not in edits}
        new: Sequence[Message] = ()
        if before is not None:
            new = conversation.messages_not_in(before)
        elif replan is not None:
            # A window that has not seen the conversation before treats everything since the replan as new.
            new = conversation.received[replan.rows :]
        return conversation, NewContent(new, carried)

    def _build_conversation(
        self,
        request: WindowRequest,
        replan: ReplanRecord | None,
        edits: EditsByTarget,
        parsed_before: WindowConversation | None,
    ) -> WindowConversation:
        """Build a conversation with the edits of the ledger; without them if a damaged ledger makes them impossible."""
        marks, scale = self._setup.settings.context_marks, self._setup.scale
        try:
            return WindowConversation(request, replan, edits, scale, parsed_before, marks)
        except (PlanError, LookupError, TypeError, ValueError) as error:
            if replan is None:
                raise
            self._event_log.report("store", f"the edits of the ledger cannot be applied: {error}", parsed_before)
            return WindowConversation(request, None, {}, scale, parsed_before, marks)

    @staticmethod
    def _is_own_output(conversation: WindowConversation, request: WindowRequest) -> bool:
        """Return True if the request starts with the rows that the window sent for this conversation."""
        output = compute_prefix_digests(conversation.sent_digests())
        count = len(output)
        return count <= len(request.prefix_digests) and output[-1:] == request.prefix_digests[count - 1 : count]

    def _configure(self, request: WindowRequest) -> None:
        """Resolve the options for the model that a request names; a change of model resets the cache state."""
        request_drop = request.dialect.request_thinking_drop
        self._can_drop_thinking = request_drop is not None and request_drop(request.value) is not None
        named = request.value.get("model") if request.is_body else ""
        model = named if isinstance(named, str) else ""
        if self._request is not None and model == self._model:
            return
        if self._request is not None:
            self._cache.reset()
        empty_history = parse_request_prompt(request).build_history(())
        self._setup = resolve_plan_setup(empty_history, self._policy, self._plan_options)
        self._model = model
        if not self._usage_observer.observations:
            with self._event_log.catch_ledger_errors(None):
                self._usage_observer.load_fact(self.ledger.get_fact(f"{USAGE_FACT_PREFIX}{model}"))

    def _build_output(self, request: WindowRequest, conversation: WindowConversation, now: float) -> Any:
        """Record the request as sent, and return it with cache breakpoints."""
        previous = 0
        with self._event_log.catch_ledger_errors(conversation):
            previous = self._cache.record_sent(conversation, now)
        # Keep only the digests: the user's value and rows may be large.
        self._request = structs.replace(request, value=None, rows=())
        value = self._build_value(request, conversation)
        dialect = request.dialect
        place_breakpoints = dialect.place_cache_breakpoints
        if place_breakpoints is None:
            return value
        if self._breakpoint_mode == "auto" and (is_one_shot(request) or not is_for_vendor(request)):
            return value
        return place_breakpoints(
            value,
            asked=self._breakpoint_mode,
            ttl=self._cache_ttl,
            stable=conversation.stable_rows,
            previous=previous,
            own=request.has_cache_breakpoints,
        )

    def _build_value(self, request: WindowRequest, conversation: WindowConversation) -> Any:
        """Return the request with the edits of the conversation."""
        value = conversation.build_request(request)
        dialect = request.dialect
        if conversation.has_keep_marks:
            value = strip_keep_marks(value, dialect.messages_field)
        if dialect.request_thinking_drop is not None and self._thinking_rule == "drop_block" and conversation.edits:
            value = dialect.request_thinking_drop(value) or value
        return value

    def copy_sent_rows(self) -> SentRows | None:
        """Return the rows of the latest request, for a caller that cannot wait for the window; None if there is none.

        They come without keep marks and cache breakpoints of the window's own.
        """
        with self._lock:
            last = self._cache.last_request
            if last is None:
                return None
            conversation = last.conversation
            drop = find_dialect(conversation.dialect).request_thinking_drop
            needs_drop = drop is not None and self._thinking_rule == "drop_block" and bool(conversation.edits)
            return SentRows(
                conversation.dialect,
                conversation.prompt_digest,
                conversation.row_digests,
                tuple(conversation.slots),
                conversation.changed_fields or {},
                (lambda body: drop(body) or body) if drop is not None and needs_drop else None,
            )

    def apply_recorded(self, messages: M) -> M:
        """Return the messages with the edits that the ledger holds for them; decide nothing and record nothing."""
        with self._lock:
            if has_nothing_to_fit(messages):
                return messages
            request = read_request(messages, self._format)
            self._configure(request)
            replan = self.ledger.latest_replan(request.prefix_digests)
            if replan is None:
                return messages
            parsed_before = self._conversations[-1] if self._conversations else None
            marks = self._setup.settings.context_marks
            edits = self.ledger.active_edits(replan)
            conversation = WindowConversation(request, replan, edits, self._setup.scale, parsed_before, marks)
            return self._build_value(request, conversation)  # type: ignore[no-any-return]

    @property
    def last_sent(self) -> SentRequest | None:
        """The latest request, as the window sent it; None before the first one."""
        with self._lock:
            return self._cache.last_request

    def observe(self, usage: Any, *, reports_cache: bool = True) -> None:
        """Calibrate the token count and the lifetime of the cache with the usage of the latest request.

        `usage` is the usage object of the response, as a dict or an SDK object. None is ignored. Without
        `reports_cache`, a usage without cached tokens does not count as a cache miss: some servers never report them.
        """
        with self._lock:
            if usage is None:
                return
            last = self._cache.last_request
            if last is None:
                raise OptionError("usage without a request: call `fit` before `observe`")
            self._usage_observer.add(
                last.tokens,
                parse_provider_usage(usage),
                expected=last.expected_cached if reports_cache else 0,
                gap=last.seconds_since_last,
                vendor=self._list_prices,
            )
            with self._event_log.catch_ledger_errors(last.conversation):
                self.ledger.set_fact(f"{USAGE_FACT_PREFIX}{self._model}", self._usage_observer.to_fact())

    def note_cache_refresh(self, *, at: datetime | float | None = None) -> None:
        """Note that the latest request was sent once more, so that its cache has a new lifetime."""
        with self._lock:
            self._cache.refresh(to_epoch_seconds(at))

    @property
    def requests(self) -> tuple[SummaryRequest, ...]:
        """Summary requests that have no text yet; pass their texts to `fill`."""
        with self._lock:
            return tuple(self._summary_jobs.open_requests.values())

    def fill(self, id: str, text: str) -> None:
        """Provide the text of an open summary request; a later replan inserts the text."""
        with self._lock:
            if id not in self._summary_jobs.open_requests:
                raise OptionError(f"no open summary request {id!r}; `window.requests` lists the open ones")
            self._summary_jobs.fill(id, text)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the summaries that are written in the background, at most `seconds`."""
        self._summary_jobs.wait(seconds)

    def save(self, path: str | Path) -> None:
        """Save the ledger to a file, from which `Window.load` resumes."""
        with self._lock:
            self.ledger.save(path)

    @classmethod
    def load(cls, path: str | Path, policy: PolicyLike = "auto", **options: Unpack[WindowOptions]) -> "Window":
        """Return a window with these options that resumes from the ledger in a file."""
        if not Path(path).exists():
            raise LedgerError(f"{path}: no ledger found; `window.save(path)` writes one")
        options["ledger"] = ledger = Ledger(path)
        ledger.latest_replan(())  # an explicit request to resume fails if the file cannot be read
        return cls(policy, **options)
