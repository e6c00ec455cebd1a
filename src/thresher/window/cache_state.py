"""What the provider's cache knows, and what reading from it has cost: the state of a conversation between two calls.

The state is written down with each call, so that a process that starts anew, or shares the ledger, goes on where the
last one was: it knows whether the cache is warm, and sends the same for a request that was sent already.
"""

from math import inf

from msgspec import Struct
from msgspec.structs import astuple

from thresher.window.conversation import WindowConversation
from thresher.window.ledger import Ledger

STATE_FACT_PREFIX = "state:"
MAX_CONVERSATIONS = 8
"""Conversations whose latest request is remembered."""


class SentRequest(Struct, frozen=True):
    """A request that went out."""

    conversation: WindowConversation
    rows: int
    tokens: int
    expected_cached: int
    """Tokens of it that the cache served if it still lived."""
    seconds_since_last: float
    """Seconds since the request before."""


class PromptCacheState(Struct):
    """What is known of a conversation beside its rows and its edits."""

    last_sent_at: float = -inf
    """When the latest request went out."""
    last_prefix_digest: str = ""
    """Which one that was: the digest of its rows, and of what stood before them."""
    prompt_digest: str = ""
    avoidable_cost: float = 0.0
    """What reading has cost of late that could have gone."""
    retry_above_tokens: int = 0
    """Tokens below which it is not worth looking again."""
    fruitless_attempts: int = 0
    """How often in a row it was not."""
    exceeds_budget: bool = False
    """Whether nothing legal fits."""


class PromptCacheTracker:
    """The beginning that need not be paid for again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._conversation_key = ""
        self._is_model_changed = False
        """Whether the cache is another one than before."""
        self._last_requests: dict[str, SentRequest] = {}
        self.state = PromptCacheState()

    @property
    def last_request(self) -> SentRequest | None:
        """The latest request of this conversation."""
        return self._last_requests.get(self._conversation_key)

    def switch_to(self, thread: WindowConversation) -> None:
        """Take up the state of a conversation, as whoever sent of it last has left it."""
        name = conversation_key(thread)
        if name != self._conversation_key or self._ledger.is_shared:
            told = None if self._is_model_changed else self._ledger.get_fact(name)
            self.state = PromptCacheState(*told) if told else PromptCacheState()
            self._conversation_key, self._is_model_changed = name, False

    def reset(self) -> None:
        """Nothing is known of the cache of another model."""
        self._last_requests.clear()
        self._conversation_key, self._is_model_changed = "", True

    def is_repeat(self, thread: WindowConversation, now: float, life: float) -> bool:
        """Whether this very request went out just now: it goes out again as it was."""
        same = (
            self.state.last_prefix_digest == thread.prefix_digests[-1].hex()
            and self.state.prompt_digest == thread.prompt_digest.hex()
        )
        return same and now - self.state.last_sent_at <= life

    def is_warm(self, now: float, life: float) -> bool:
        """Whether what was sent last is still there, whatever is sent now."""
        return now - self.state.last_sent_at <= life

    def cached_tokens(self, thread: WindowConversation, now: float, life: float) -> int:
        """Tokens at the beginning of a request that are still cached."""
        last = self.last_request
        if now - self.state.last_sent_at > life:
            return 0
        if last is None:
            return self._cached_tokens_from_ledger(thread)
        if last.conversation.prompt_digest != thread.prompt_digest:
            return 0
        if last.conversation is thread:
            return last.tokens
        return thread.tokens_before(self._count_shared_rows(last, thread))

    @staticmethod
    def _count_shared_rows(last: SentRequest, thread: WindowConversation) -> int:
        """How many rows at the beginning are those of an earlier request."""
        if last.conversation is thread:
            return last.rows
        pairs = enumerate(zip(last.conversation.sent_digests()[: last.rows], thread.sent_digests(), strict=False))
        return next((row for row, (one, other) in pairs if one != other), min(last.rows, len(thread.slots)))

    def _cached_tokens_from_ledger(self, thread: WindowConversation) -> int:
        """The same, by what another process wrote down."""
        rows = next(
            (n for n, one in enumerate(thread.prefix_digests, 1) if one.hex() == self.state.last_prefix_digest), 0
        )
        late = len(thread.prefix_digests) - rows
        if (
            not rows
            or late >= len(thread.tokens_before_message)
            or self.state.prompt_digest != thread.prompt_digest.hex()
        ):
            return 0
        return thread.tokens_before_message[-late] if late else thread.tokens

    def record_sent(self, thread: WindowConversation, now: float) -> int:
        """Take note of a request that goes out; says how many of its rows went out with the one before."""
        last, state = self.last_request, self.state
        shared = (
            self._count_shared_rows(last, thread)
            if last is not None and last.conversation.prompt_digest == thread.prompt_digest
            else 0
        )
        expected, gap = self.cached_tokens(thread, state.last_sent_at, inf), now - state.last_sent_at
        self._last_requests[self._conversation_key] = SentRequest(
            thread, len(thread.slots), thread.tokens, expected, gap
        )
        if len(self._last_requests) > MAX_CONVERSATIONS:
            del self._last_requests[next(iter(self._last_requests))]
        state.last_sent_at, state.last_prefix_digest, state.prompt_digest = (
            max(state.last_sent_at, now),
            thread.prefix_digests[-1].hex(),
            thread.prompt_digest.hex(),
        )
        self._ledger.set_fact(self._conversation_key, astuple(state))
        return shared


def conversation_key(thread: WindowConversation) -> str:
    """By what came before its first answer, a conversation is known with all its forks."""
    answer = next((n for n, message in enumerate(thread.received) if message.role == "assistant"), len(thread.received))
    return STATE_FACT_PREFIX + thread.prefix_digests[max(0, answer - 1)].hex()
