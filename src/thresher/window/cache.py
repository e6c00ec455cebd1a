"""What the provider's cache knows, and what reading from it has cost: the state of a conversation between two calls.

The state is written down with each call, so that a process that starts anew, or shares the ledger, goes on where the
last one was: it knows whether the cache is warm, and sends the same for a request that was sent already.
"""

from math import inf

from msgspec import Struct
from msgspec.structs import astuple

from thresher.window.ledger import Ledger
from thresher.window.thread import Thread

STATE = "state:"
MOST = 8
"""Conversations whose latest request is remembered."""


class Sent(Struct, frozen=True):
    """A request that went out."""

    thread: Thread
    rows: int
    tokens: int
    expected: int
    """Tokens of it that the cache served if it still lived."""
    gap: float
    """Seconds since the request before."""


class State(Struct):
    """What is known of a conversation beside its rows and its edits."""

    at: float = -inf
    """When the latest request went out."""
    chain: str = ""
    """Which one that was: the digest of its rows, and of what stood before them."""
    head: str = ""
    rent: float = 0.0
    """What reading has cost of late that could have gone."""
    wait: int = 0
    """Tokens below which it is not worth looking again."""
    vain: int = 0
    """How often in a row it was not."""
    over: bool = False
    """Whether nothing legal fits."""


class Cache:
    """The beginning that need not be paid for again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._name = ""
        self._is_other = False
        """Whether the cache is another one than before."""
        self._lasts: dict[str, Sent] = {}
        self.state = State()

    @property
    def last(self) -> Sent | None:
        """The latest request of this conversation."""
        return self._lasts.get(self._name)

    def follow(self, thread: Thread) -> None:
        """Take up the state of a conversation, as whoever sent of it last has left it."""
        name = name_of(thread)
        if name != self._name or self._ledger.is_shared:
            told = None if self._is_other else self._ledger.fact(name)
            self.state = State(*told) if told else State()
            self._name, self._is_other = name, False

    def forget(self) -> None:
        """Nothing is known of the cache of another model."""
        self._lasts.clear()
        self._name, self._is_other = "", True

    def is_repeated(self, thread: Thread, now: float, life: float) -> bool:
        """Whether this very request went out just now: it goes out again as it was."""
        same = self.state.chain == thread.chain[-1].hex() and self.state.head == thread.head.hex()
        return same and now - self.state.at <= life

    def is_warm(self, now: float, life: float) -> bool:
        """Whether what was sent last is still there, whatever is sent now."""
        return now - self.state.at <= life

    def serves(self, thread: Thread, now: float, life: float) -> int:
        """Tokens at the beginning of a request that are still cached."""
        last = self.last
        if now - self.state.at > life:
            return 0
        if last is None:
            return self._remembered(thread)
        if last.thread.head != thread.head:
            return 0
        if last.thread is thread:
            return last.tokens
        return thread.tokens_before(self._shared(last, thread))

    @staticmethod
    def _shared(last: Sent, thread: Thread) -> int:
        """How many rows at the beginning are those of an earlier request."""
        if last.thread is thread:
            return last.rows
        pairs = enumerate(zip(last.thread.digests()[: last.rows], thread.digests(), strict=False))
        return next((row for row, (one, other) in pairs if one != other), min(last.rows, len(thread.slots)))

    def _remembered(self, thread: Thread) -> int:
        """The same, by what another process wrote down."""
        rows = next((n for n, one in enumerate(thread.chain, 1) if one.hex() == self.state.chain), 0)
        late = len(thread.chain) - rows
        if not rows or late >= len(thread.before) or self.state.head != thread.head.hex():
            return 0
        return thread.before[-late] if late else thread.tokens

    def send(self, thread: Thread, now: float) -> int:
        """Take note of a request that goes out; says how many of its rows went out with the one before."""
        last, state = self.last, self.state
        shared = self._shared(last, thread) if last is not None and last.thread.head == thread.head else 0
        expected, gap = self.serves(thread, state.at, inf), now - state.at
        self._lasts[self._name] = Sent(thread, len(thread.slots), thread.tokens, expected, gap)
        if len(self._lasts) > MOST:
            del self._lasts[next(iter(self._lasts))]
        state.at, state.chain, state.head = max(state.at, now), thread.chain[-1].hex(), thread.head.hex()
        self._ledger.note(self._name, astuple(state))
        return shared


def name_of(thread: Thread) -> str:
    """By what came before its first answer, a conversation is known with all its forks."""
    answer = next((n for n, message in enumerate(thread.raw) if message.role == "assistant"), len(thread.raw))
    return STATE + thread.chain[max(0, answer - 1)].hex()
