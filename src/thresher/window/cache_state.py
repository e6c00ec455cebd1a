"""State of the provider's prompt cache between two calls, and the avoidable cost of re-reading removable tokens.

The ledger stores the state with each call. A process that restarts or shares the ledger therefore knows whether the
cache is still warm, and sends the same bytes for a request that was already sent.
"""

from math import inf
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import astuple

from thresher.window.conversation import WindowConversation, count_shared_items
from thresher.window.ledger import Ledger, LedgerError

STATE_FACT_PREFIX = "state:"
MAX_CONVERSATIONS = 8
"""Maximum number of conversations whose latest request stays in memory."""


class SentRequest(Struct, frozen=True):
    """A request that was sent."""

    conversation: WindowConversation
    rows: int
    tokens: int
    original_tokens: int
    """Tokens of the request as the agent passed it in."""
    expected_cached: int
    """Tokens that the provider should read from its cache, unless the cache has expired."""
    seconds_since_last: float
    """Seconds since the previous request."""


class PromptCacheState(Struct):
    """Cache state of one conversation. The ledger stores it as a list of the fields, in this order."""

    last_sent_at: float = -inf
    """Time of the latest request."""
    last_prefix_digest: str = ""
    """Digest of the rows of the latest request."""
    prompt_digest: str = ""
    """Digest of the latest request's system text and tools."""
    avoidable_cost: float = 0.0
    """Dollars spent on re-reading removable tokens since the last replan."""
    retry_above_tokens: int = 0
    """Request size in tokens from which another replan is worth trying."""
    fruitless_attempts: int = 0
    """Number of consecutive attempts to replan that saved little or nothing."""
    exceeds_budget: bool = False
    """True if the latest request exceeded the budget."""


class PromptCacheTracker:
    """Tracks which prefix of a conversation the provider has cached."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._conversation_key = ""
        self._is_model_changed = False
        """True after a change of model, until a conversation is loaded. Each model has its own cache."""
        self._last_requests: dict[str, SentRequest] = {}
        self.state = PromptCacheState()

    @property
    def last_request(self) -> SentRequest | None:
        """The latest request of this conversation."""
        return self._last_requests.get(self._conversation_key)

    def switch_to(self, conversation: WindowConversation) -> None:
        """Make a conversation the current one and load its state, which another process may have changed."""
        key = conversation_key(conversation)
        if key == self._conversation_key and not self._ledger.is_shared:
            return
        is_known = key == self._conversation_key
        is_model_changed, self._is_model_changed = self._is_model_changed, False
        self._conversation_key = key
        if not is_known:  # also if the ledger cannot be read
            self.state = PromptCacheState()
        stored = None if is_model_changed else self._ledger.get_fact(key)
        self.state = _decode_state(stored) if stored else PromptCacheState()

    def reset(self) -> None:
        """Discard the state after a change of model."""
        self._last_requests.clear()
        self._conversation_key, self._is_model_changed = "", True

    def is_repeat(self, conversation: WindowConversation, now: float, life: float) -> bool:
        """Return True if the latest request had the same rows and prompt, and the cache has not expired since."""
        return (
            self.state.last_prefix_digest == conversation.prefix_digests[-1].hex()
            and self._has_same_prompt(conversation)
            and self.is_warm(now, life)
        )

    def is_warm(self, now: float, life: float) -> bool:
        """Return True if the cache of the latest request has not expired."""
        return now - self.state.last_sent_at <= life

    def cached_tokens(self, conversation: WindowConversation, now: float, life: float) -> int:
        """Count the tokens of the prefix that is still cached."""
        last = self.last_request
        if not self.is_warm(now, life):
            return 0
        if last is None:
            return self._cached_tokens_from_ledger(conversation)
        if last.conversation.prompt_digest != conversation.prompt_digest:
            return 0
        if last.conversation is conversation:
            return last.tokens
        return conversation.tokens_before(_count_shared_rows(last, conversation))

    def _cached_tokens_from_ledger(self, conversation: WindowConversation) -> int:
        """Count the cached tokens if another process sent the latest request."""
        digests = [digest.hex() for digest in conversation.prefix_digests]
        if self.state.last_prefix_digest not in digests or not self._has_same_prompt(conversation):
            return 0
        new_rows = len(digests) - 1 - digests.index(self.state.last_prefix_digest)
        if new_rows >= len(conversation.tokens_before_message):
            return 0
        return conversation.tokens_before_message[-new_rows] if new_rows else conversation.tokens

    def _has_same_prompt(self, conversation: WindowConversation) -> bool:
        return self.state.prompt_digest == conversation.prompt_digest.hex()

    def refresh(self, now: float) -> None:
        """Set the time of the latest request, which was sent again."""
        if self._conversation_key:
            self.state.last_sent_at = max(self.state.last_sent_at, now)
            self._ledger.set_fact(self._conversation_key, astuple(self.state))

    def record_sent(self, conversation: WindowConversation, now: float) -> int:
        """Record a request and return the number of leading rows that it shares with the previous one."""
        last, state = self.last_request, self.state
        shared = 0
        if last is not None and last.conversation.prompt_digest == conversation.prompt_digest:
            shared = _count_shared_rows(last, conversation)
        expected = self.cached_tokens(conversation, state.last_sent_at, inf)
        self._last_requests[self._conversation_key] = SentRequest(
            conversation,
            len(conversation.slots),
            conversation.tokens,
            conversation.original_tokens,
            expected,
            now - state.last_sent_at,
        )
        if len(self._last_requests) > MAX_CONVERSATIONS:
            del self._last_requests[next(iter(self._last_requests))]
        state.last_sent_at = max(state.last_sent_at, now)
        state.last_prefix_digest = conversation.prefix_digests[-1].hex()
        state.prompt_digest = conversation.prompt_digest.hex()
        self._ledger.set_fact(self._conversation_key, astuple(state))
        return shared


def _decode_state(stored: Any) -> PromptCacheState:
    """Decode a stored state; older ledgers store fewer fields. JSON has no infinity: it stores null."""
    fields = dict(zip(PromptCacheState.__struct_fields__, stored if isinstance(stored, list) else (), strict=False))
    known = {name: value for name, value in fields.items() if value is not None}
    try:
        return convert(known, PromptCacheState)
    except ValidationError as error:
        raise LedgerError(f"cannot decode a stored cache state ({error}); start a new ledger") from error


def _count_shared_rows(last: SentRequest, conversation: WindowConversation) -> int:
    """Count the leading rows that a conversation shares with an earlier request."""
    if last.conversation is conversation:
        return last.rows
    return count_shared_items(last.conversation.sent_digests()[: last.rows], conversation.sent_digests())


def conversation_key(conversation: WindowConversation) -> str:
    """Return the key of a conversation and all its forks: the digest of the rows before the first answer."""
    received = conversation.received
    answer = next((index for index, message in enumerate(received) if message.role == "assistant"), len(received))
    return STATE_FACT_PREFIX + conversation.prefix_digests[max(0, answer - 1)].hex()
