"""What the provider's cache knows: the latest request, for as long as a cache lives.

The time of it is written down now and then, so that a process that starts anew knows whether the cache is warm.
"""

from collections.abc import Sequence
from math import inf

from msgspec import Struct

from thresher.model import Message
from thresher.window.ledger import Ledger
from thresher.window.thread import Thread

CLOCK = "clock:"
EVERY = 30.0
"""Seconds after which the time of the latest request is written down again."""


class Sent(Struct, frozen=True):
    """A request that went out."""

    messages: Sequence[Message]
    length: int
    tokens: int
    head: bytes
    at: float
    expected: int
    """Tokens of it that the cache served if it still lived."""
    gap: float
    """Seconds since the request before."""


class Cache:
    """The beginning that need not be paid for again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._noted = 0.0
        self.last: Sent | None = None

    def serves(self, thread: Thread, now: float, life: float) -> int:
        """Tokens at the beginning of a request that are still cached."""
        last = self.last
        if last is None:
            return self._remembered(thread, now, life)
        if now - last.at > life or last.head != thread.head:
            return 0
        if last.messages is thread.sent:
            return last.tokens
        same = 0
        for one, other in zip(last.messages[: last.length], thread.sent, strict=False):
            if one is not other and one != other:
                break
            same += 1
        return thread.before[same] if same < len(thread.before) else thread.tokens

    def _remembered(self, thread: Thread, now: float, life: float) -> int:
        """The same, by what another process wrote down."""
        at, chain = self._ledger.fact(_name(thread)) or (0.0, "")
        rows = next((n for n, one in enumerate(thread.chain, 1) if one.hex() == chain), 0)
        late = len(thread.chain) - rows
        if not rows or not 0 <= now - at <= life or late >= len(thread.before):
            return 0
        return thread.before[-late] if late else thread.tokens

    def send(self, thread: Thread, now: float) -> int:
        """Take note of a request that goes out; says how many of its messages went out with the one before."""
        last, expected = self.last, self.serves(thread, now, inf)
        gap = now - last.at if last is not None else 0.0
        self.last = Sent(thread.sent, len(thread.sent), thread.tokens, thread.head, now, expected, gap)
        if abs(now - self._noted) >= EVERY:
            self._noted = now
            self._ledger.note(_name(thread), (now, thread.chain[-1].hex()))
        return last.length if last is not None and last.messages is thread.sent else 0


def _name(thread: Thread) -> str:
    """By its first row, a conversation is known with all its forks."""
    return CLOCK + thread.chain[0].hex()
