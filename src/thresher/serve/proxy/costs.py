"""The cost of a conversation as billed, and an estimate of its cost without Thresher.

The estimate assumes that the client's requests had reached the vendor as they were, with a cache that behaves like the
real one: it serves the longest prefix of the last request, until it expires. The tokens of removed content are counted,
and scaled by the ratio of billed to counted tokens of the content that earlier requests added. Until the first edit
both costs are equal by definition.
"""

from time import monotonic
from typing import NamedTuple

from thresher.model.message import Usage
from thresher.tokens import ModelInfo, find_model
from thresher.window.cache_state import SentRequest
from thresher.window.conversation import count_shared_items
from thresher.window.prices import prices_for_model

MIN_SCALE_TOKENS = 1_000
"""Minimum number of counted tokens that were added before their ratio to billed tokens is used."""


class BilledRequest(NamedTuple):
    """Tokens and dollars of one request: as Thresher sends it, and as the client wrote it."""

    tokens: int
    tokens_without: int
    cost: float | None
    """None if no price is known for the model."""
    cost_without: float | None


class _OriginalRequest(NamedTuple):
    row_digests: list[bytes]
    prompt_digest: bytes
    tokens: int
    at: float


class ContentScale:
    """The ratio of billed to counted tokens of content, without that of system text, tools and the API's own frames."""

    def __init__(self) -> None:
        self._last: tuple[int, int, int] | None = None
        self._billed = self._counted = 0

    def measure(self, billed: int, counted: int, removed: int) -> float:
        """Return the ratio after a request with these tokens, of which others are `removed` by edits.

        Only a request that adds content, with the same edits as the last one, shows what content costs.
        """
        if self._last is not None:
            added, more = billed - self._last[0], counted - self._last[1]
            if removed == self._last[2] and added > 0 and more > 0:
                self._billed, self._counted = self._billed + added, self._counted + more
        self._last = billed, counted, removed
        return self._billed / self._counted if self._counted >= MIN_SCALE_TOKENS else billed / counted


class CostEstimate:
    """Costs of the requests of one conversation."""

    def __init__(self) -> None:
        self._scale = ContentScale()
        self._last: _OriginalRequest | None = None
        self._was_edited = False
        self._was_cached = False

    def add(self, model: str, sent: SentRequest | None, usage: Usage, *, is_observed: bool) -> BilledRequest:
        """Return the costs of an answered request.

        If it `is_observed`, the client's request was billed, and the fitted one is the estimate.
        """
        info = find_model(model) if model else None
        billed = _price_usage(info, usage) if info is not None else None
        if sent is None or not sent.tokens or not sent.original_tokens:
            return BilledRequest(usage.context, usage.context, billed, billed)
        counted = sent.original_tokens if is_observed else sent.tokens
        factor = usage.context / counted
        removed = sent.original_tokens - sent.tokens
        scale = self._scale.measure(usage.context, counted, 0 if is_observed else removed)
        tokens = original = usage.context
        if is_observed:
            tokens = max(round(original - removed * scale), 0)
        else:
            original = round(tokens + removed * scale)
        self._was_edited = self._was_edited or tokens != original
        self._was_cached = self._was_cached or bool(usage.cache_read or usage.cache_write)
        cached = self._replace_last(sent, original, info.cache_ttl if info is not None else 0)
        if info is None or billed is None or not self._was_edited:
            return BilledRequest(tokens, original, billed, billed)
        prices = prices_for_model(info, hour=bool(usage.cache_write_1h))
        estimated = original
        if is_observed:
            is_warm = sent.seconds_since_last <= prices.life
            estimated, cached = tokens, round(sent.expected_cached * factor) if is_warm else 0
        other = prices.request_cost(estimated, cached) if self._was_cached else prices.input * estimated / 1_000_000
        other += info.price.output * usage.output / 1_000_000
        cost, cost_without = (other, billed) if is_observed else (billed, other)
        return BilledRequest(tokens, original, cost, cost_without)

    def _replace_last(self, sent: SentRequest, tokens: int, life: int) -> int:
        """Remember a request, and return how many of its tokens the last one would have left in the cache."""
        now, last, conversation = monotonic(), self._last, sent.conversation
        digests = conversation.row_digests
        self._last = _OriginalRequest(digests, conversation.prompt_digest, tokens, now)
        if last is None or now - last.at > life or last.prompt_digest != conversation.prompt_digest:
            return 0
        shared = count_shared_items(last.row_digests, digests)
        if shared == len(last.row_digests):
            return min(last.tokens, tokens)
        return round(last.tokens * shared / len(last.row_digests))


def _price_usage(model: ModelInfo, usage: Usage) -> float:
    price = model.price
    write_1h = price.cache_write_1h or price.cache_write
    dollars = price.input * usage.input + price.cache_read * usage.cache_read + price.output * usage.output
    dollars += price.cache_write * (usage.cache_write - usage.cache_write_1h) + write_1h * usage.cache_write_1h
    return dollars / 1_000_000
