"""The window: in an agent's loop, the same history comes back a little longer, and what was sent of it stays as it was.

Each call costs one pass over the rows for their digests, and work for what is new. What was edited once stays edited,
byte for byte, so that the provider's cache still serves it; a new edit is made when it pays, when it must be, or when
it costs nothing. Every such change is an event, and a decision in the ledger before anything goes out.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar

from msgspec import structs

from thresher.budget.fitting import PolicyLike, default_budget, keep, set_up
from thresher.budget.ladder import too_large
from thresher.edits import ThinkingRule, finish
from thresher.errors import OptionError
from thresher.model import History
from thresher.model.turns import is_prompt
from thresher.store import Store, StoreError, default_store
from thresher.summarise import Judge, Summariser, SummaryRequest
from thresher.window.asking import Asking
from thresher.window.cache import MOST, Cache, name_of
from thresher.window.deciding import Decision, age_kept, carry, estimate, fillable, may, must, pays
from thresher.window.events import OTHER, Change, Event, Trigger, event_of
from thresher.window.intake import Request, chained, is_claude, is_empty, read_request, seconds, wire_format
from thresher.window.later import Later, Summaries
from thresher.window.ledger import Edits, Epoch, Ledger, LedgerError, by_target, difference
from thresher.window.marks import Life, Marks, can_drop_blocks, dropping_blocks, marked
from thresher.window.pace import Pace, check_callable, check_choice, check_kind
from thresher.window.planning import Situation, chaff, resumed
from thresher.window.prices import Prices, prices_named
from thresher.window.sieve import Sieve
from thresher.window.telling import Teller
from thresher.window.thread import Came, Thread, mended, prompt_of
from thresher.window.usage import Observed, usage_of

M = TypeVar("M")
OnOver = Literal["send", "raise"]


class Window:
    """Keeps a growing conversation small, and its beginning as the provider's cache knows it."""

    def __init__(  # noqa: PLR0913 - a window has many keys
        self,
        policy: PolicyLike = "auto",
        *,
        budget: int | str | None = None,
        model: str | None = None,
        prices: Prices | None = None,
        store: Store | None = None,
        ledger: str | Path | Ledger | None = None,
        format: str | None = None,
        thinking: ThinkingRule | None = None,
        counter: str = "auto",
        pace: Pace | None = None,
        on_over: OnOver = "send",
        marks: Marks = "auto",
        life: Life = "5m",
        summariser: Summariser | None = None,
        summaries: Summaries = "background",
        judge: Judge | None = None,
        on_event: Callable[[Event], None] | None = None,
        **options: Any,
    ) -> None:
        """Start with nothing seen, or where a ledger left off.

        `policy`, `budget`, `model`, `thinking`, `counter` and other options are those of `plan`; `format` names the
        API where it is not to be told from the messages. `prices` are the model's own unless given, `life` says which
        of Anthropic's caches is used, `marks` what happens to its cache marks: "auto" places them in a request body
        for Claude that has none, "place" moves the user's own, too, "leave" leaves all as it is. `pace` says how eager
        it is, `on_over` what happens when nothing legal fits, `on_event` hears of every change. `store` keeps what is
        left out, `ledger` is a file for decisions that processes may share. `summariser` writes what stands in for
        many parts, in the background, or before the loop goes on (`summaries="now"`), or others do ("never"); `judge`
        may hold on to tool chains, and the loop waits for it.
        """
        check_choice(
            on_over=(on_over, OnOver), marks=(marks, Marks), life=(life, Life), summaries=(summaries, Summaries)
        )
        check_kind(pace=(pace, Pace), prices=(prices, Prices))
        check_callable(summariser=summariser, judge=judge, on_event=on_event)
        self._asked: dict[str, Any] = {"policy": policy, "budget": budget, "model": model, "thinking": thinking}
        self._asked |= {"counter": counter, **options}
        self._setup = set_up(History(), **self._asked)
        self._format = None if format is None else wire_format(format).name
        self._store = store
        self._prices = prices
        self._pace = pace or Pace(**self._setup.settings.pace)
        self._on_over = on_over
        self._marks = marks
        self._life = life
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self._teller = Teller(on_event)
        self._model = ""
        self._can_drop = False
        self._threads: list[Thread] = []
        """The latest conversations, the newest last."""
        self._request: Request | None = None
        self._cache = Cache(self.ledger)
        self._asking = Asking(self.ledger)
        self._sieve = Sieve(self._asking, self.ledger, judge, self._teller.failures.append)
        self._later = Later(self.ledger, summariser, summaries, self._teller.failures.append)
        self._observed = Observed()
        self._lock = RLock()

    @property
    def events(self) -> list[Event]:
        """All that changed what is sent, or could not; the latest last."""
        return self._teller.events

    # --- the verb ------------------------------------------------------------------------------------------------

    def fit(self, messages: M, *, at: datetime | float | None = None) -> M:
        """The same messages, or request body, as they shall be sent; `at` is the time of the call, by default now."""
        with self._lock:
            if is_empty(messages):
                return messages
            now = seconds(at)
            request = read_request(messages, self._format, self._request)
            self._set_up(request)
            self._can_drop = request.format.name == "anthropic" and can_drop_blocks(messages)
            thread, came = self._followed(request, now)
            with self._teller.safely(thread, self._setup.model, now):
                self._asking.notice(came.new, thread.calls)
            if thread.tokens > self.budget or not self._cache.is_repeated(thread, now, self.prices.life):
                thread = self._considered(request, thread, came, now)
            self._teller.say_failures(thread, self._setup.model, now)
            return self._handed_out(request, thread, now)  # type: ignore[no-any-return]

    # --- what came in --------------------------------------------------------------------------------------------

    def _followed(self, request: Request, now: float) -> tuple[Thread, Came]:
        """The conversation that a request is of, and what is new in it."""
        last = next((one for one in reversed(self._threads) if one.extends(request)), None)
        epoch = self._newest(request, last, now)
        if last is not None and _same(epoch, last.epoch) and last.scale == self._setup.scale:
            self._follow(last, last)
            return last, Came(last.grow(request))
        edits = self.ledger.edits(epoch)
        thread = Thread(
            request, epoch, edits, self._setup.scale, last or (self._threads[-1] if self._threads else None)
        )
        self._asking.learn(thread.original, edits.values())
        before = last or next((one for one in reversed(self._threads) if name_of(one) == name_of(thread)), None)
        self._follow(thread, before)
        if last is not None and not _same(epoch, last.epoch):
            cost = self.prices.request(thread.tokens, self._cached(thread, now))
            cost -= self.prices.request(last.tokens, last.tokens)
            self._teller.tell(event_of(OTHER, last, thread, cost, self.prices.read, self._setup.model, now))
        carried: Edits = {}
        if last is None and before is not None and not self._is_own_output(before, request):
            carried = {target: edit for target, edit in before.edits.items() if target not in edits}
        # Who has not seen the conversation before looks at all that came since something was decided.
        new = thread.unlike(before) if before is not None else thread.raw[epoch.rows :] if epoch is not None else []
        return thread, Came(new, carried)

    def _newest(self, request: Request, last: Thread | None, now: float) -> Epoch | None:
        found = [last.epoch if last is not None else None]
        with self._teller.safely(last, self._setup.model, now):
            found.append(self.ledger.newest(request.chain))
        return found[-1]

    def _follow(self, thread: Thread, instead_of: Thread | None) -> None:
        """Go on with a thread, in the place of another one of the same conversation."""
        others = [one for one in self._threads if one is not thread and one is not instead_of]
        self._threads = [*others, thread][-MOST:]
        self._cache.follow(thread)

    @staticmethod
    def _is_own_output(thread: Thread, request: Request) -> bool:
        """Whether what was handed out has come back as the history."""
        output = chained(thread.digests())
        return len(output) <= len(request.chain) and output[-1:] == request.chain[len(output) - 1 : len(output)]

    def _set_up(self, request: Request) -> None:
        """Work out what was asked for, by the model that a request names; another model has another cache."""
        named = request.value.get("model") if request.is_body else ""
        model = named if isinstance(named, str) else ""
        if self._request is not None and model == self._model:
            return
        if self._request is not None:
            self._cache.forget()
        head = prompt_of(request)
        self._setup = set_up(History((), head.tools, head.pocket), **self._asked)
        self._model = model

    @property
    def store(self) -> Store:
        """Where what is left out stays."""
        return self._store or default_store()

    @property
    def prices(self) -> Prices:
        """What tokens cost, and how long the cache has been seen to live."""
        return self._observed.prices(self._vendor)

    @property
    def _vendor(self) -> Prices:
        return self._prices or prices_named(self._setup.model, hour=self._life == "1h")

    @property
    def budget(self) -> int:
        """The tokens that a request may have, as they are counted here."""
        asked = self._setup.budget or default_budget(self._setup.model)
        return self._observed.counted(asked)

    def _cached(self, thread: Thread, now: float) -> int:
        return self._cache.serves(thread, now, self.prices.life)

    # --- what to do about it -------------------------------------------------------------------------------------

    def _considered(self, request: Request, thread: Thread, came: Came, now: float) -> Thread:
        """The thread, with new edits where that is called for."""
        limit, pace = self.budget, self._pace
        cached = self._cached(thread, now)

        def situation() -> Situation:
            return self._situation(thread, came, cached)

        state = self._cache.state
        decision: Decision | None = None
        tried = False
        if thread.tokens > limit * pace.high or not thread.is_legal:
            waits = thread.tokens < state.wait and (thread.tokens <= limit or state.over)
            tried = not thread.is_legal or not waits
            if tried and (decision := must(thread, situation(), pace, limit, self._sieve)) is None:
                self._back_off(thread)
        elif came.carried:
            decision = carry(situation(), thread)
        if decision is None:
            decision = self._improvement(thread, came, cached, now, situation)
        if decision is not None:
            thread = self._decided(request, thread, decision, cached, now)
        if thread.tokens > limit:
            self._over(thread, limit, now, tried=tried)
        state.over = thread.tokens > limit
        return thread

    def _trigger(self, came: Came, cached: int, now: float) -> Trigger:
        if not cached:
            return "ride" if self._cache.is_warm(now, self.prices.life) else "cold"
        return "boundary" if any(map(is_prompt, came.new)) else "worth"

    def _improvement(
        self, thread: Thread, came: Came, cached: int, now: float, situation: Callable[[], Situation]
    ) -> Decision | None:
        """A change that pays, if there is one; what could go and stays is paid for with each call."""
        prices, pace = self.prices, self._pace
        found, clearable = estimate(thread, prices, pace, cached, pace.keeps(self.budget))
        state = self._cache.state
        state.rent += prices.read * clearable / 1_000_000
        further = pace.further(thread.calls)
        trigger = self._trigger(came, cached, now)
        waits = trigger == "worth" and thread.tokens < state.wait
        # A prompt of the human's is a good time: what came before it is asked for less from then on.
        rent = state.rent / pace.boundary if trigger == "boundary" else state.rent
        if waits or not pays(found, further, rent, pace):
            return None
        decision = may(trigger, situation, further, rent, pace, self._sieve)
        if decision is None:
            self._back_off(thread)
        return decision

    def _back_off(self, thread: Thread) -> None:
        """Look again when there is more to gain: each time that it was in vain, twice as much."""
        state = self._cache.state
        state.wait = thread.tokens + self._pace.worth * 2 ** min(state.vain, 10)
        state.vain += 1

    @property
    def _thinking(self) -> ThinkingRule:
        """What an edit means for thinking behind it: who cannot ask the API to drop it must take it along."""
        rule = self._setup.thinking
        return "strip_after_edit" if rule == "drop_block" and not self._can_drop else rule

    def _situation(self, thread: Thread, came: Came, cached: int) -> Situation:
        setup = structs.replace(self._setup, thinking=self._thinking)
        return Situation(
            history=mended(thread.prompt.history(thread.raw), thread.dialect),
            edits=thread.edits,
            carried=came.carried,
            setup=setup,
            policies=chaff(setup.label, setup.policies, age_kept(thread, self.budget, self._pace)),
            prices=self.prices,
            cached=cached,
            further=self._pace.further(thread.calls),
            store=self.store,
        )

    def _decided(self, request: Request, thread: Thread, decision: Decision, cached: int, now: float) -> Thread:
        """Keep what goes, write the decision down, and only then act on it."""
        prices_now = self.prices
        history = decision.draft.history
        plan = structs.replace(finish(decision.draft, self._thinking), budget=self.budget)
        plan = self._later.taken(history, plan, thread.scale, fillable(decision, plan, thread, self._thinking))
        edits = by_target(plan.edits)
        added, removed = difference(thread.edits, edits)
        if not added and not removed and thread.is_legal:
            self._back_off(thread)
            return thread
        epoch = self.ledger.epoch(thread.chain, thread.epoch, decision.trigger, now, added, removed)
        try:
            keep(history, structs.replace(plan, edits=added), self.store)
            held = self.ledger.decide(epoch)
        except (StoreError, LedgerError) as error:
            self._teller.say("store", f"nothing was left out: {error}", thread, self._setup.model, now)
            self._back_off(thread)
            return thread
        after = Thread(request, held, self.ledger.edits(held), thread.scale, thread)
        self._asking.learn(after.original, after.edits.values())
        self._follow(after, thread)
        state = self._cache.state
        state.rent, state.wait = 0.0, 0
        if thread.tokens - after.tokens < self._pace.worth:
            self._back_off(after)
        else:
            state.vain = 0
        self._later.decided(history, structs.replace(plan, edits=tuple(after.edits.values())))
        change = Change(decision.trigger, decision.why, plan, added) if held == epoch else OTHER
        price = prices_now.request(after.tokens, self._cached(after, now)) - prices_now.request(thread.tokens, cached)
        self._teller.tell(event_of(change, thread, after, price, prices_now.read, self._setup.model, now))
        return after

    def _over(self, thread: Thread, limit: int, now: float, *, tried: bool) -> None:
        """Nothing legal fits: say so, and go on or stop as the user wants it."""
        if self._on_over == "raise":
            raise too_large(resumed(self._situation(thread, Came(), 0)), limit)
        if tried:
            self._back_off(thread)
        why = f"nothing legal fits into {limit:,} tokens: the smallest request has {thread.tokens:,}"
        self._teller.say("over", why, thread, self._setup.model, now)

    def _handed_out(self, request: Request, thread: Thread, now: float) -> Any:
        previous = 0
        with self._teller.safely(thread, self._setup.model, now):
            previous = self._cache.send(thread, now)
        # What it held is the user's, and may be large: only how it is known is kept.
        self._request = structs.replace(request, value=None, rows=())
        value = thread.request(request)
        if request.format.name != "anthropic":
            return value
        if self._thinking == "drop_block" and thread.edits:
            value = dropping_blocks(value)
        if self._marks == "auto" and not is_claude(request):
            return value
        return marked(
            value, asked=self._marks, ttl=self._life, stable=thread.stable, previous=previous, own=request.is_marked
        )

    def observe(self, usage: Any) -> None:
        """Take the bill of the latest request: its tokens set the count right, its cache reads the cache's life.

        The `usage` of a response, as a dict or as the SDK has it; where a server sends none, None.
        """
        with self._lock:
            if usage is None:
                return
            last = self._cache.last
            if last is None:
                raise OptionError("there is no request yet that this bill could be for: call `fit` first")
            self._observed.add(last.tokens, usage_of(usage), expected=last.expected, gap=last.gap, vendor=self._vendor)

    @property
    def requests(self) -> tuple[SummaryRequest, ...]:
        """Summaries that could be better: whoever has a text hands it over with `fill`."""
        with self._lock:
            return tuple(self._later.open.values())

    def fill(self, id: str, text: str) -> None:
        """Take a text for an open request; it enters at the next re-plan."""
        with self._lock:
            if id not in self._later.open:
                raise OptionError(f"no summary is asked for under {id!r}; `window.requests` lists those that are")
            self._later.fill(id, text)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until what is written in the background is written, or so long."""
        self._later.wait(seconds)

    # --- from one run to the next --------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the ledger into a file: `Window.load` goes on from there."""
        with self._lock:
            self.ledger.save(path)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> "Window":
        """A window that goes on with the ledger of a file, with the options that it is given."""
        if not Path(path).exists():
            raise LedgerError(f"{path}: there is no ledger; `window.save(path)` writes one")
        return cls(ledger=path, **options)


def _same(one: Epoch | None, other: Epoch | None) -> bool:
    return one is other or (one is not None and other is not None and one.key == other.key)
