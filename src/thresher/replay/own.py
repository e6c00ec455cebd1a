"""Thresher's own policies as ways, by the door that an agent's loop takes: a request body in, the same shape out."""

from itertools import chain
from typing import Any

from thresher.budget.fitting import PolicyLike
from thresher.formats import parse
from thresher.replay.bill import Rates
from thresher.replay.feed import Ask, Feed, Piece
from thresher.replay.outcome import Referee
from thresher.replay.run import Way
from thresher.window import Prices, Window


def own_way(policy: PolicyLike, budget: int, rates: Rates, *, name: str = "", **options: Any) -> Way:
    """A policy by its name, or one from a file, in a `Window` that may send so many tokens and has these options."""

    def start(feed: Feed, _: Referee) -> Ask:
        recording = feed.recording
        window = Window(
            policy,
            budget=budget,
            model=recording.model or None,
            prices=_prices(rates),
            store=feed.store,
            counter=recording.scale.counter.name,
            format=recording.wire,
            marks="leave",
            **options,
        )

        pieces = _Pieces(feed)

        def ask(at: float | None) -> list[Piece]:
            sent = window.fit({**recording.body, recording.key: list(feed.wire)}, at=at)
            return pieces.of(sent)

        return ask

    return Way(name or str(policy), start, budget)


class _Pieces:
    """The pieces of what a window hands out; a row that it hands out again is the same object, and is read once."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._beside: list[Piece] | None = None
        self._rows: dict[int, tuple[Any, list[Piece]]] = {}

    def of(self, sent: dict[str, Any]) -> list[Piece]:
        key = self._feed.recording.key
        if self._beside is None:
            self._beside = [*self._feed.tools, *self._read({**sent, key: []})]
        return [*self._beside, *chain.from_iterable(map(self._row, sent[key]))]

    def _row(self, row: Any) -> list[Piece]:
        known = self._rows.get(id(row))
        if known is None or known[0] is not row:
            known = self._rows[id(row)] = row, self._read({self._feed.recording.key: [row]})
        return known[1]

    def _read(self, body: dict[str, Any]) -> list[Piece]:
        messages = parse(body, self._feed.recording.wire).messages
        return list(chain.from_iterable(map(self._feed.message, messages)))


def _prices(rates: Rates) -> Prices:
    """The same prices, as a window is told them: its input costs 1."""
    return Prices(rates.input, rates.read, rates.write, rates.ttl, rates.minimum)
