"""One conversation of the proxy: its window, and the edits to send when the window cannot answer.

Its methods run in a worker thread, because they read files, wait for locks and take time. Only `send_recorded` and the
properties need neither, and run in the event loop.
"""

from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

from thresher.model.message import Usage
from thresher.policies import PolicyLike
from thresher.serve.proxy.conversations import Conversation
from thresher.serve.proxy.opening import choose_opening
from thresher.window import Ledger, LedgerError, Window, WindowEvent
from thresher.window.cache_state import SentRequest
from thresher.window.options import WindowOptions
from thresher.window.sent_rows import SentRows

REFUSAL_FACT = "proxy:refusal:"
OPENING_FACT = "proxy:opening:"
LOCK_SECONDS = 3.0
"""Time to wait for a locked ledger. A longer wait would only keep a thread from other conversations."""
DAMAGED_SUFFIX = ".damaged"
_DAMAGE = ("not a database", "malformed")


class FittedConversation:
    """A conversation with a window of its own."""

    def __init__(
        self,
        identity: Conversation,
        dialect: str,
        ledger_file: Path | None,
        policy: PolicyLike,
        options: WindowOptions,
    ) -> None:
        """Open nothing yet."""
        self.identity = identity
        self.dialect = dialect
        self.refused = ""
        """Rule for which the upstream refused an edited request; then the conversation passes through."""
        self._ledger_file, self._policy, self._options = ledger_file, policy, options
        self._refusal_fact = f"{REFUSAL_FACT}{identity.agent}"
        self._opening_fact = f"{OPENING_FACT}{identity.key}"
        self._is_opening_fixed = False
        self._reports_cache = False
        """True after a usage with cached tokens. Some servers cache, and never report it."""
        self._lock = RLock()
        """Held by every method that uses the ledger: a file must not close while another thread uses it."""
        self._window: Window | None = None
        self._events: list[WindowEvent] = []
        self._sent_rows: SentRows | None = None
        """Rows of the latest request."""
        self._first: tuple[dict[str, Any], dict[str, Any]] | None = None
        """The first request, and the same request with the edits of an earlier run."""

    @property
    def window(self) -> Window:
        """The window, opened at its first use."""
        if self._window is None:
            self._window = self._open_window(self._open_ledger())
        return self._window

    @property
    def opening(self) -> str | None:
        """Way in which the agent can open a placeholder; None if it cannot."""
        return self._window.opening if self._window is not None else ""

    def _open_ledger(self) -> Ledger:
        """Open the ledger; put a damaged file aside, and begin a new one."""
        ledger = Ledger(self._ledger_file, lock_timeout=LOCK_SECONDS)
        try:
            self._load_facts(ledger)
        except LedgerError as error:
            if self._ledger_file is None or not any(word in str(error) for word in _DAMAGE):
                raise
            self._ledger_file.replace(self._ledger_file.with_name(self._ledger_file.name + DAMAGED_SUFFIX))
            for file in self._ledger_file.parent.glob(f"{self._ledger_file.name}-*"):
                file.unlink(missing_ok=True)
            ledger = Ledger(self._ledger_file, lock_timeout=LOCK_SECONDS)
            self._events.append(WindowEvent(trigger="store", reason=f"a damaged ledger was put aside: {error}", time=0))
        return ledger

    def _load_facts(self, ledger: Ledger) -> None:
        """Read what an earlier run recorded about the conversation."""
        self.refused = str(ledger.get_fact(self._refusal_fact) or "")
        stored = ledger.get_fact(self._opening_fact)
        self._is_opening_fixed = isinstance(stored, list)
        self._stored_opening: str | None = stored[0] if isinstance(stored, list) else ""

    def _open_window(self, ledger: Ledger) -> Window:
        options = self._options.copy()
        own: WindowOptions = {
            "ledger": ledger,
            "format": self.dialect,
            "cache_breakpoints": "leave",
            "on_event": self._events.append,
        }
        options.update(own)
        window = Window(self._policy, **options)
        if self._is_opening_fixed:
            window.opening = self._stored_opening
        return window

    def fit(self, body: dict[str, Any]) -> tuple[dict[str, Any], SentRequest | None]:
        """Return the request to send, and its figures."""
        with self._lock:
            return self._fit(body)

    def _fit(self, body: dict[str, Any]) -> tuple[dict[str, Any], SentRequest | None]:
        window = self.window
        if self.refused:
            return body, None
        if not self._is_opening_fixed:
            window.opening = choose_opening(self.identity.tools)
        if self._sent_rows is None:
            # A plan may take too long or fail, and the request must then have the edits of an earlier run.
            self._first = (body, window.apply_recorded(body))
        sent = window.fit(body)
        self._sent_rows, self._first = window.copy_sent_rows(), None
        if not self._is_opening_fixed and any(event.tokens_after < event.tokens_before for event in self._events):
            self._is_opening_fixed = True
            self._record(lambda: window.ledger.set_fact(self._opening_fact, [window.opening]))
        return sent, window.last_sent

    def apply_recorded(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request with its recorded edits, without new ones."""
        with self._lock:
            window = self.window
            return body if self.refused else window.apply_recorded(body)

    def send_recorded(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the request with the edits of the latest request; None if it does not continue that request."""
        if self._sent_rows is not None:
            return self._sent_rows.extend_to(body)
        return self._first[1] if self._first is not None and self._first[0] is body else None

    def was_refused(self) -> bool:
        """Return True if the upstream refused an edit of this conversation."""
        return bool(self.refused)

    def record_refusal(self, rule: str) -> None:
        """Pass the conversation through from now on, also after a restart."""
        self.refused = rule
        with self._lock:
            self._record(lambda: self.window.ledger.set_fact(self._refusal_fact, rule))

    def observe(self, usage: Usage) -> None:
        """Calibrate the window with the usage of its latest request."""
        self._reports_cache = self._reports_cache or bool(usage.cache_read or usage.cache_write)
        with self._lock:
            self.window.observe(usage, reports_cache=self._reports_cache)

    def note_cache_refresh(self) -> None:
        """Note that the vendor has just read the cache of the latest request again."""
        with self._lock:
            self.window.note_cache_refresh()

    def close(self) -> None:
        """Close the ledger; the next use opens it again."""
        with self._lock:
            if self._window is not None:
                self._window.ledger.close()

    def take_events(self) -> list[WindowEvent]:
        """Return the events since the last call."""
        taken = list(self._events)
        del self._events[: len(taken)]
        return taken

    @staticmethod
    def _record(write: Callable[[], None]) -> None:
        try:
            write()
        except LedgerError:
            return  # it still holds for this process
