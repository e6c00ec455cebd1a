"""The window: in an agent's loop, the same history comes back a little longer, and what was sent of it stays as it was.

Each call costs one pass over the rows for their digests, and work for what is new. What was edited once stays edited,
byte for byte, so that the provider's cache still serves it; a new edit is made when it pays, when it must be, or when
it costs nothing. Every such change is an event, and a decision in the ledger before anything goes out.
"""

from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, Unpack

from msgspec import structs

from thresher.budget.fitting import resolve_plan_setup
from thresher.budget.options import PlanOptions, check_option_names
from thresher.budget.thresholds import Thresholds
from thresher.deprecation import rename_options, rename_value
from thresher.dialects import emit, parse
from thresher.dialects.cache_control import CacheBreakpointMode, CacheTtl
from thresher.dialects.table import find_vendor_dialect, get_native_dialect
from thresher.errors import OptionError
from thresher.model import History, Session
from thresher.policies import PolicyLike
from thresher.summarize import SummaryRequest
from thresher.tokens import token_weights_for
from thresher.window.cache_state import PromptCacheTracker, conversation_key
from thresher.window.conversation import NewContent, WindowConversation, parse_request_prompt
from thresher.window.event_log import EventLog
from thresher.window.events import EXTERNAL_REPLAN, WindowEvent, build_window_event
from thresher.window.ledger import EditsByTarget, Ledger, LedgerError, ReplanRecord
from thresher.window.options import (
    RENAMED_OPTIONS,
    WindowOptions,
    check_callable,
    check_window_choice,
    check_window_option_type,
)
from thresher.window.prices import Prices
from thresher.window.refetches import RefetchTracker
from thresher.window.replanner import OnOverflow, Replanner
from thresher.window.request import (
    WindowRequest,
    compute_prefix_digests,
    has_nothing_to_fit,
    is_for_vendor,
    read_request,
    resolve_window_dialect,
    to_epoch_seconds,
)
from thresher.window.summary_jobs import SummaryJobs, SummaryTiming
from thresher.window.usage import UsageObserver, parse_provider_usage
from thresher.window.veto import EditVeto

M = TypeVar("M")


class Window(Replanner):
    """Keeps a growing conversation small, and its beginning as the provider's cache knows it."""

    def __init__(self, policy: PolicyLike = "auto", **options: Unpack[WindowOptions]) -> None:
        """Start with nothing seen, or where a ledger left off; `WindowOptions` says what each option does.

        `policy`, `budget`, `model`, `thinking`, `counter` and the options that filter are those of `plan`.
        """
        rename_options("Window", options, RENAMED_OPTIONS)
        check_option_names(options, WindowOptions.__annotations__)
        format, ledger = options.pop("format", None), options.pop("ledger", None)
        summarizer, judge = options.pop("summarizer", None), options.pop("judge", None)
        thresholds, on_event = options.pop("thresholds", None), options.pop("on_event", None)
        summaries = rename_value("Window", "summaries", options.pop("summaries", "background"), {"now": "blocking"})
        self._store = options.pop("store", None)
        self._prices = options.pop("prices", None)
        self._on_overflow = options.pop("on_overflow", "send")
        self._breakpoint_mode = options.pop("cache_breakpoints", "auto")
        self._cache_ttl = options.pop("cache_ttl", "5m")
        check_window_choice(
            on_overflow=(self._on_overflow, OnOverflow),
            cache_breakpoints=(self._breakpoint_mode, CacheBreakpointMode),
            cache_ttl=(self._cache_ttl, CacheTtl),
            summaries=(summaries, SummaryTiming),
        )
        check_window_option_type(thresholds=(thresholds, Thresholds), prices=(self._prices, Prices))
        check_callable(summarizer=summarizer, judge=judge, on_event=on_event)
        self._policy = policy
        self._plan_options: PlanOptions = options
        self._setup = resolve_plan_setup(History(), policy, options)
        self._format = None if format is None else resolve_window_dialect(format).name
        self._thresholds = thresholds or Thresholds(**self._setup.settings.thresholds)
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self._event_log = EventLog(on_event)
        self._model = ""
        self._can_drop_thinking = False
        self._conversations: list[WindowConversation] = []
        """The latest conversations, the newest last."""
        self._request: WindowRequest | None = None
        self._cache = PromptCacheTracker(self.ledger)
        self._refetches = RefetchTracker(self.ledger)
        self._veto = EditVeto(self._refetches, self.ledger, judge, self._event_log.failures.append)
        self._summary_jobs = SummaryJobs(self.ledger, summarizer, summaries, self._event_log.failures.append)
        self._usage_observer = UsageObserver()
        self._lock = RLock()

    @property
    def events(self) -> list[WindowEvent]:
        """All that changed what is sent, or could not; the latest last."""
        return self._event_log.events

    # --- the verb ------------------------------------------------------------------------------------------------

    def fit(self, messages: M, *, at: datetime | float | None = None) -> M:
        """The same messages, or request body, as they shall be sent; `at` is the time of the call, by default now."""
        if isinstance(messages, Session):
            return structs.replace(messages, segments=(*messages.segments[:-1], self.fit(messages.history, at=at)))
        if isinstance(messages, History):
            return self._fit_history(messages, at)  # type: ignore[return-value]
        with self._lock:
            if has_nothing_to_fit(messages):
                return messages
            now = to_epoch_seconds(at)
            request = read_request(messages, self._format, self._request)
            self._configure(request)
            ask_drop = request.dialect.request_thinking_drop
            self._can_drop_thinking = ask_drop is not None and ask_drop(messages) is not None
            thread, came = self._track_conversation(request, now)
            with self._event_log.catch_ledger_errors(thread, self._setup.model, now):
                self._refetches.detect_refetches(came.messages, thread.calls)
            if thread.tokens > self.budget or not self._cache.is_repeat(thread, now, self.prices.life):
                thread = self._replan_if_needed(request, thread, came, now)
            self._event_log.report_failures(thread, self._setup.model, now)
            return self._build_output(request, thread, now)  # type: ignore[no-any-return]

    def _fit_history(self, history: History, at: datetime | float | None) -> History:
        """Fit the request that a history makes in its own dialect."""
        native = (get_native_dialect(owner.pocket.format) for owner in (history, *history) if owner.pocket is not None)
        found = self._format or next((one.name for one in native if one is not None), None)
        name = found or find_vendor_dialect(token_weights_for(history).vendor).name
        body = emit(history, name, body=True)
        after = self.fit(body, at=at)
        return history if after == body else parse(after, name)

    # --- what came in --------------------------------------------------------------------------------------------

    def _track_conversation(self, request: WindowRequest, now: float) -> tuple[WindowConversation, NewContent]:
        """The conversation that a request is of, and what is new in it."""
        last = next((one for one in reversed(self._conversations) if one.is_extended_by(request)), None)
        epoch = self._latest_replan(request, last, now)
        if last is not None and _is_same_replan(epoch, last.last_replan) and last.scale == self._setup.scale:
            self._switch_to(last, last)
            return last, NewContent(last.extend(request))
        edits = self.ledger.active_edits(epoch)
        thread = WindowConversation(
            request, epoch, edits, self._setup.scale, last or (self._conversations[-1] if self._conversations else None)
        )
        self._refetches.record_removed(thread.original, edits.values())
        before = last or next(
            (one for one in reversed(self._conversations) if conversation_key(one) == conversation_key(thread)), None
        )
        self._switch_to(thread, before)
        if last is not None and not _is_same_replan(epoch, last.last_replan):
            cost = self.prices.request_cost(thread.tokens, self._cached_tokens(thread, now))
            cost -= self.prices.request_cost(last.tokens, last.tokens)
            self._event_log.publish(
                build_window_event(EXTERNAL_REPLAN, last, thread, cost, self.prices.read, self._setup.model, now)
            )
        carried: EditsByTarget = {}
        if last is None and before is not None and not self._is_own_output(before, request):
            carried = {target: edit for target, edit in before.edits.items() if target not in edits}
        # Who has not seen the conversation before looks at all that came since something was decided.
        new = (
            thread.messages_not_in(before)
            if before is not None
            else thread.received[epoch.rows :]
            if epoch is not None
            else []
        )
        return thread, NewContent(new, carried)

    def _latest_replan(
        self, request: WindowRequest, last: WindowConversation | None, now: float
    ) -> ReplanRecord | None:
        found = [last.last_replan if last is not None else None]
        with self._event_log.catch_ledger_errors(last, self._setup.model, now):
            found.append(self.ledger.latest_replan(request.prefix_digests))
        return found[-1]

    @staticmethod
    def _is_own_output(thread: WindowConversation, request: WindowRequest) -> bool:
        """Whether what was handed out has come back as the history."""
        output = compute_prefix_digests(thread.sent_digests())
        return (
            len(output) <= len(request.prefix_digests)
            and output[-1:] == request.prefix_digests[len(output) - 1 : len(output)]
        )

    def _configure(self, request: WindowRequest) -> None:
        """Work out what was asked for, by the model that a request names; another model has another cache."""
        named = request.value.get("model") if request.is_body else ""
        model = named if isinstance(named, str) else ""
        if self._request is not None and model == self._model:
            return
        if self._request is not None:
            self._cache.reset()
        head = parse_request_prompt(request)
        self._setup = resolve_plan_setup(History((), head.tools, head.extras), self._policy, self._plan_options)
        self._model = model

    def _build_output(self, request: WindowRequest, thread: WindowConversation, now: float) -> Any:
        previous = 0
        with self._event_log.catch_ledger_errors(thread, self._setup.model, now):
            previous = self._cache.record_sent(thread, now)
        # What it held is the user's, and may be large: only how it is known is kept.
        self._request = structs.replace(request, value=None, rows=())
        value = thread.build_request(request)
        dialect = request.dialect
        if dialect.request_thinking_drop is not None and self._thinking_rule == "drop_block" and thread.edits:
            value = dialect.request_thinking_drop(value) or value
        place = dialect.place_cache_breakpoints
        if place is None or (self._breakpoint_mode == "auto" and not is_for_vendor(request)):
            return value
        return place(
            value,
            asked=self._breakpoint_mode,
            ttl=self._cache_ttl,
            stable=thread.stable_rows,
            previous=previous,
            own=request.has_cache_breakpoints,
        )

    def observe(self, usage: Any) -> None:
        """Take the bill of the latest request: its tokens set the count right, its cache reads the cache's life.

        The `usage` of a response, as a dict or as the SDK has it; where a server sends none, None.
        """
        with self._lock:
            if usage is None:
                return
            last = self._cache.last_request
            if last is None:
                raise OptionError("there is no request yet that this bill could be for: call `fit` first")
            self._usage_observer.add(
                last.tokens,
                parse_provider_usage(usage),
                expected=last.expected_cached,
                gap=last.seconds_since_last,
                vendor=self._list_prices,
            )

    @property
    def requests(self) -> tuple[SummaryRequest, ...]:
        """Summaries that could be better: whoever has a text hands it over with `fill`."""
        with self._lock:
            return tuple(self._summary_jobs.open_requests.values())

    def fill(self, id: str, text: str) -> None:
        """Take a text for an open request; it enters at the next re-plan."""
        with self._lock:
            if id not in self._summary_jobs.open_requests:
                raise OptionError(f"no summary is asked for under {id!r}; `window.requests` lists those that are")
            self._summary_jobs.fill(id, text)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until what is written in the background is written, or so long."""
        self._summary_jobs.wait(seconds)

    # --- from one run to the next --------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the ledger into a file: `Window.load` goes on from there."""
        with self._lock:
            self.ledger.save(path)

    @classmethod
    def load(cls, path: str | Path, policy: PolicyLike = "auto", **options: Unpack[WindowOptions]) -> "Window":
        """A window that goes on with the ledger of a file, with the options that it is given."""
        if not Path(path).exists():
            raise LedgerError(f"{path}: there is no ledger; `window.save(path)` writes one")
        options["ledger"] = path
        return cls(policy, **options)


def _is_same_replan(one: ReplanRecord | None, other: ReplanRecord | None) -> bool:
    return one is other or (one is not None and other is not None and one.key == other.key)
