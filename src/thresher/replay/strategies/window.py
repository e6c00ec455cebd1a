"""Thresher's own policies as ways, by the door that an agent's loop takes: a request body in, the same shape out."""

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
    """A policy by its name, or one from a file, in a `Window` that may send so many tokens and has these options."""

    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        recording = feed.recording
        window = Window(
            policy,
            budget=budget,
            model=recording.model or None,
            prices=_to_window_prices(rates),
            store=feed.store,
            counter=recording.token_weights.counter.name,
            format=recording.dialect,
            cache_breakpoints="leave",
            **options,
        )

        pieces = _WindowPieces(feed)

        def ask(at: float | None) -> list[RequestPiece]:
            sent = window.fit({**recording.body, recording.rows_field: list(feed.dialect_rows)}, at=at)
            return pieces.parse_request(sent)

        return ask

    return Strategy(name or str(policy), start, budget)


class _WindowPieces:
    """The pieces of what a window hands out; a row that it hands out again is the same object, and is read once."""

    def __init__(self, feed: ReplayConversation) -> None:
        self._conversation = feed
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
    """The same prices, as a window is told them: its input costs 1."""
    return Prices(rates.input, rates.read, rates.write, rates.ttl, rates.minimum)
