"""Thresher's policies as strategies, through the same interface that an agent loop uses: request bodies in and out."""

from itertools import chain
from typing import Any

from thresher.dialects import parse
from thresher.policies import PolicyLike
from thresher.replay.conversation import ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.cost import Rates
from thresher.replay.residency import ResidencyChecker
from thresher.replay.simulate import Strategy
from thresher.window import Prices, Window


def window_strategy(policy: PolicyLike, budget: int, rates: Rates, *, name: str = "", **options: Any) -> Strategy:
    """Run a policy in a `Window` with this budget and these options. The policy is a name or a callable."""

    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        recording = conversation.recording
        window = Window(
            policy,
            budget=budget,
            model=recording.model or None,
            prices=_to_window_prices(rates),
            store=conversation.store,
            counter=recording.token_weights.counter.name,
            format=recording.dialect,
            cache_breakpoints="leave",
            **options,
        )

        pieces = _WindowPieces(conversation)

        def build_request(at: float | None) -> list[RequestPiece]:
            sent = window.fit({**recording.body, recording.rows_field: list(conversation.dialect_rows)}, at=at)
            return pieces.parse_request(sent)

        return build_request

    return Strategy(name or str(policy), start, budget)


class _WindowPieces:
    """Convert the requests that a window returns to pieces.

    A window returns unchanged rows as the same objects, so their pieces are cached.
    """

    def __init__(self, conversation: ReplayConversation) -> None:
        self._conversation = conversation
        self._system_pieces: list[RequestPiece] | None = None
        self._row_cache: dict[int, tuple[Any, list[RequestPiece]]] = {}

    def parse_request(self, sent: dict[str, Any]) -> list[RequestPiece]:
        key = self._conversation.recording.rows_field
        if self._system_pieces is None:
            self._system_pieces = [*self._conversation.tool_pieces, *self._parse_pieces({**sent, key: []})]
        return [*self._system_pieces, *chain.from_iterable(map(self._row_pieces, sent[key]))]

    def _row_pieces(self, row: Any) -> list[RequestPiece]:
        known = self._row_cache.get(id(row))
        if known is None or known[0] is not row:
            known = self._row_cache[id(row)] = row, self._parse_pieces({self._conversation.recording.rows_field: [row]})
        return known[1]

    def _parse_pieces(self, body: dict[str, Any]) -> list[RequestPiece]:
        messages = parse(body, self._conversation.recording.dialect).messages
        return list(chain.from_iterable(map(self._conversation.make_message_pieces, messages)))


def _to_window_prices(rates: Rates) -> Prices:
    """Convert rates to window prices, with uncached input as 1."""
    return Prices(rates.input, rates.read, rates.write, rates.ttl, rates.minimum)
